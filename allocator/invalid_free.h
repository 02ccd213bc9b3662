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
// Any thread, no lock held.
#ifndef HEAPTAP_ALLOCATOR_INVALID_FREE_H_
#define HEAPTAP_ALLOCATOR_INVALID_FREE_H_

#include "slab.h"

namespace heaptap {

// Whether a block of the slab, or the run, begins there; it may be free.
bool IsBlock(const Slab* slab, const void* pointer);

// Whether a block of the calling thread's slab is free. Takes time proportional to the number of such blocks.
bool IsFreeBlock(const Slab* slab, const Block* block);

// Finds out what is wrong with a pointer at which no live block begins.
void RefuseFree(const void* pointer);

// A block was freed although it was free.
void RefuseSecondFree(const void* pointer);

// Whether a list comes back to its first block at once, as it does if that was freed twice.
inline bool IsShortCycle(const Block* first) {
  const Block* next = first->next;
  return next != nullptr && (next == first || next->next == first);
}

// Makes a list that leads back into itself end before it does. Returns how many blocks it has.
uint32_t CutCycle(Block* first);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_INVALID_FREE_H_
