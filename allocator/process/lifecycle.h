// SPDX-License-Identifier: Apache-2.0
//
// What the parts above this layer do in the life of the process. process.cc calls these functions in this order;
// api/lifecycle.cc defines them, and so lists those parts.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_LIFECYCLE_H_
#define HEAPTAP_ALLOCATOR_PROCESS_LIFECYCLE_H_

namespace heaptap::lifecycle {

// The options are read, and the process is about to start. The start's lock is held: nothing may allocate.
void Begin();

// The process has started; libc may allocate. Registers what is to be done at exit. False: there is no room for that.
bool RegisterExits();

// Before heaptap:start fires.
void Start();

// After it has.
void Started();

// In the child of a fork, before heaptap:start fires: locks and what belongs to the parent.
void ResetAfterFork();

}  // namespace heaptap::lifecycle

#endif  // HEAPTAP_ALLOCATOR_PROCESS_LIFECYCLE_H_
