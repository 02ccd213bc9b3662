// SPDX-License-Identifier: Apache-2.0
//
// Blocks that are no slab's: runs of units up to kRunMaximum bytes, and huge blocks with a mapping of their own. Also
// small sizes whose alignment no slab can give.
//
// A huge block begins at a multiple of the chunk size; the page before it is its descriptor.
//
// Any thread, any time after observer::BeforeUse. The observer is told of samples among such blocks from here.
#ifndef HEAPTAP_ALLOCATOR_CORE_LARGE_H_
#define HEAPTAP_ALLOCATOR_CORE_LARGE_H_

#include "allocator/core/slab.h"

namespace heaptap {

struct Huge {
  size_t size;    // usable
  size_t mapped;  // bytes of the mapping from the block on
  bool sampled;
  size_t requested;  // what the program asked for
};

// The descriptor of the huge block at `pointer`, or nullptr if none begins there. REQUIRES: ChunkKind is kHuge.
Huge* HugeOf(void* pointer);

// Whether a huge block holds that address. Looks at all of them.
bool IsInsideHuge(const void* pointer);

// A block of `size` usable bytes (a class size) at a multiple of `alignment` (a power of two), of which the program
// asked for `requested`. nullptr: out of memory.
void* AllocateLarge(size_t size, size_t alignment, size_t requested);

void FreeRun(Slab* run);
void FreeHuge(Huge* huge);

// Blocks of this file of a class (ClassNumber), since the start; those of the small classes too.
struct LargeCounts {
  uint64_t allocations;
  uint64_t frees;
};
LargeCounts ReadLargeCounts(unsigned class_number);

// realloc to `size` usable bytes without changing the address; counts as a free and an allocation if it succeeds. What
// a huge block has grown by reads as zero; what a run has grown by is undefined. REQUIRES: `size` is a class size.
bool ResizeRun(Slab* run, size_t size, size_t requested);
bool ResizeHuge(Huge* huge, size_t size, size_t requested);

// realloc of a huge block that moves its pages instead of copying them. nullptr: out of memory, nothing has changed.
void* MoveHuge(Huge* huge, size_t size, size_t requested);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_LARGE_H_
