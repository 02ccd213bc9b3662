// SPDX-License-Identifier: Apache-2.0
//
// Frees of pointers at which no live block begins. Each is counted and ignored, and the first of each kind is reported.
// With abort_invalid_free the first is reported and ends the process.
//
// The slow paths of free notice pointers from other allocators, large blocks that are already free, and addresses
// inside a block. The fast path checks nothing: when a thread frees a small block twice, only the next refill can
// notice, and only if almost nothing was freed in between. With abort_invalid_free every free takes the slow path,
// which searches the free blocks of the slab.
//
// Any thread, also in a HeapScope.
#ifndef HEAPTAP_ALLOCATOR_CORE_INVALID_FREE_H_
#define HEAPTAP_ALLOCATOR_CORE_INVALID_FREE_H_

namespace heaptap {

enum class InvalidFree {
  kForeign,  // the pointer does not come from this allocator
  kSecond,   // the block is already free
  kInside,   // the pointer is inside a block
};

// Counts the free, and reports it if it is the first of its kind. With abort_invalid_free: reports it and aborts.
void RefuseFree(const void* pointer, InvalidFree kind);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_INVALID_FREE_H_
