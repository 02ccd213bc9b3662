// SPDX-License-Identifier: Apache-2.0
//
// Returning the free pages of a slab that has used blocks: a program that frees nine of ten blocks at random leaves
// hardly any slab empty.
//
// The blocks on such pages leave local_free, because their links are lost, and count as used. When the slab has no
// other free block, pages are taken back one by one, and their blocks are free again.
//
// For the thread that uses the slab's heap.
#ifndef HEAPTAP_ALLOCATOR_CORE_SPARSE_SLAB_H_
#define HEAPTAP_ALLOCATOR_CORE_SPARSE_SLAB_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/slab.h"

namespace heaptap {

// A page holds so many smaller blocks that they are hardly ever all free.
inline constexpr uint32_t kLeastSparseSize = 128;

// Whether the free blocks of the slab probably leave a page free. It is probable if the share of free blocks to the
// power of n, the number of blocks on a page, times the number of pages is at least 1.
bool MayHaveFreePages(const Slab* slab);

// Returns the free pages of the slab to the system. The result is their bytes. Visits the blocks of local_free. Does
// nothing if the list is damaged. REQUIRES: size >= kLeastSparseSize, the slab's frees are settled.
size_t ReturnFreePages(Slab* slab);

// Makes at least `least` returned blocks free, or all of them.
void TakeBack(Slab* slab, uint32_t least);

// Makes the slab like a new one, except for its contents. REQUIRES: IsEmptied(slab), and its frees are settled.
void RenewSlab(Slab* slab);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_SPARSE_SLAB_H_
