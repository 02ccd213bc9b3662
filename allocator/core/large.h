// SPDX-License-Identifier: Apache-2.0
//
// Blocks outside slabs: runs of units up to kRunMaximum bytes, and huge blocks, each with its own mapping. Small sizes
// with an alignment that no slab provides are served here too.
//
// A huge block begins at a multiple of the chunk size; the page before it holds its descriptor. Freed huge blocks may
// be kept for later ones (huge_cache.h).
//
// Any thread, any time after observer::BeforeUse. These functions report samples among such blocks to the observer.
#ifndef HEAPTAP_ALLOCATOR_CORE_LARGE_H_
#define HEAPTAP_ALLOCATOR_CORE_LARGE_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/arena.h"
#include "allocator/core/huge_cache.h"
#include "allocator/core/slab.h"

namespace heaptap {

// The descriptor of the huge block at `pointer`, or nullptr if none begins there. REQUIRES: ChunkKind is kHuge.
Huge* HugeOf(void* pointer);

// Whether the address is inside a huge block. Takes time proportional to their number.
bool IsInsideHuge(const void* pointer);

// A block of the arena with `size` usable bytes (a class size) at a multiple of `alignment` (a power of two).
// `requested`: the size that the program requested. nullptr: out of memory.
void* AllocateLarge(Arena& arena, size_t size, size_t alignment, size_t requested);

// `returns_memory`: the memory goes back to the system at once.
void FreeRun(Slab* run, bool returns_memory = false);
void FreeHuge(Huge* huge, bool returns_memory = false);

// Changes the usable size to `size` without changing the address. False: impossible, and nothing has changed. Success
// counts as a free and an allocation. The new part of a huge block reads as zero; that of a run is undefined.
// REQUIRES: `size` is a class size.
bool ResizeRun(Slab* run, size_t size, size_t requested);
bool ResizeHuge(Huge* huge, size_t size, size_t requested);

// Moves a huge block, perhaps to another arena, by moving its pages instead of copying them. nullptr: out of memory, or
// the program has changed a property of some of the pages. The block is unchanged then.
void* MoveHuge(Arena& arena, Huge* huge, size_t size, size_t requested);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_LARGE_H_
