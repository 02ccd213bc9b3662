// SPDX-License-Identifier: Apache-2.0
//
// Functions of the host that call others by their names, and so come back to the guest: musl's calloc calls malloc, and
// its posix_memalign calls aligned_alloc. The guest has charged the allocation already, and the second call charges it
// again.
#ifndef HEAPTAP_ALLOCATOR_GUEST_NESTED_CALLS_H_
#define HEAPTAP_ALLOCATOR_GUEST_NESTED_CALLS_H_

namespace heaptap {

// Finds such functions by trying. In their place `host` gets functions that take the first charge back and jump on.
// Called once, after FindHost, before the guest takes samples.
void FindNestedCalls();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_NESTED_CALLS_H_
