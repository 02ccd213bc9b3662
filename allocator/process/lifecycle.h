// SPDX-License-Identifier: Apache-2.0
//
// The events of the process's life that concern the layers above. process.cc calls these functions in this order;
// api/lifecycle.cc defines them, and guest/lifecycle.cc defines them for a guest.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_LIFECYCLE_H_
#define HEAPTAP_ALLOCATOR_PROCESS_LIFECYCLE_H_

namespace heaptap::lifecycle {

// Whether another allocator of the process reads MALLOC_CONF too.
bool IsMallocConfShared();

// The options have been read. The start lock is held, so nothing may allocate.
void Begin();

// The process has started, and libc may allocate. Registers the exit handlers. False: atexit failed.
bool RegisterExits();

// Called before heaptap:start fires.
void Start();

// Called after heaptap:start has fired.
void Started();

// Called in the child of a fork, before heaptap:start fires: resets locks and drops what belongs to the parent.
void ResetAfterFork();

// The other direction, for functions that both libraries export: starts the process, unless it has started (process.h,
// StartProcess).
void EnsureStarted();

}  // namespace heaptap::lifecycle

#endif  // HEAPTAP_ALLOCATOR_PROCESS_LIFECYCLE_H_
