// SPDX-License-Identifier: Apache-2.0
//
// The slow paths of fast.cc: the allocation has been charged, and the countdown is over; or the block is a sample.
#ifndef HEAPTAP_ALLOCATOR_GUEST_SLOW_H_
#define HEAPTAP_ALLOCATOR_GUEST_SLOW_H_

#include <stddef.h>

namespace heaptap {

void* SlowMalloc(size_t size);
void* SlowTcMalloc(size_t size);
void* SlowCalloc(size_t count, size_t size);
void* SlowTcCalloc(size_t count, size_t size);
void* SlowMallocx(size_t size, int flags);
// realloc of a block of the host, or of nullptr.
void* SlowRealloc(void* pointer, size_t size);
// realloc of a block of the guest, which always moves. The new block may be a sample or not. The allocation is charged
// here.
void* ReallocSample(void* pointer, size_t size);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_SLOW_H_
