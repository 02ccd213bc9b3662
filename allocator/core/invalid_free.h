// SPDX-License-Identifier: Apache-2.0
//
// Frees of pointers at which no live block begins: counted, said once for each kind, and ignored; with
// abort_invalid_free said and the end of the process.
//
// The slow paths of free notice whatever is no block: what another allocator has made, large blocks that are free
// already, addresses inside a block. The fast path looks at nothing: of a small block that is freed twice by its thread
// only the next refill can notice, if nearly nothing was freed in between, and that the block lies in no slab of the
// thread any more. With abort_invalid_free every free takes the slow path, and looks through the free blocks of the
// slab.
//
// Any thread; it may be in a HeapScope.
#ifndef HEAPTAP_ALLOCATOR_CORE_INVALID_FREE_H_
#define HEAPTAP_ALLOCATOR_CORE_INVALID_FREE_H_

namespace heaptap {

enum class InvalidFree {
  kForeign,  // the pointer is not one of this allocator's
  kSecond,   // the block is free already
  kInside,   // the pointer is inside a block
};

// Counts the free, and says what is wrong with it. Does not return with abort_invalid_free.
void RefuseFree(const void* pointer, InvalidFree kind);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_INVALID_FREE_H_
