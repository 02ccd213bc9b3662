// SPDX-License-Identifier: Apache-2.0
//
// The allocator's functions, under names of our own; api/ gives them libc's. All of them may be called by any
// thread at any time, from the first instruction of the process on. Errors: nullptr and errno ENOMEM; otherwise errno
// is kept. Sizes are bytes; any size is allowed.
//
//   Allocate            pop the heap's ready list, else
//                       or take the heap's next fresh block, else
//     AllocateSlow      small: Heap::Take (refill), or, if it is a sample, a block of the observer's
//                       larger: AllocateLarge (large.h), which samples by itself
//   Free                push on the slab's local_free, else
//     FreeSlow          nullptr, foreign, huge, sampled, run, full slab, another thread's block, or blocks are filled
//     FreedLastBlock    the slab became empty
//
// The two fast paths know nothing about sampling: they are the same instructions whether it is on or off.
#ifndef HEAPTAP_ALLOCATOR_CORE_ALLOCATE_H_
#define HEAPTAP_ALLOCATOR_CORE_ALLOCATE_H_

#include <stddef.h>

#include "allocator/core/thread.h"

namespace heaptap {

void* AllocateSlow(size_t size);
void* MallocSlow(size_t size);  // the same, and xmalloc: for malloc itself
void FreeSlow(void* pointer);
void FreedLastBlock(Slab* slab);

// malloc. `Slow` is what it does when no block is ready. The second best way is a part of it, and not of `Slow`,
// because it is what most mallocs of a growing program take.
template <void* (*Slow)(size_t) = AllocateSlow>
[[gnu::always_inline]] inline void* Allocate(size_t size) {
  unsigned size_class;
  if (HEAPTAP_LIKELY(size <= kFineMaximum)) {
    size_class = kFineTable[(size + kFineStep - 1) / kFineStep];
  } else if (HEAPTAP_LIKELY(size <= kSmallMaximum)) {
    size_class = kCoarseTable[(size + kCoarseStep - 1) / kCoarseStep];
  } else {
    return Slow(size);
  }
  Heap* heap = current_heap;
  Block* block = heap->ready[size_class];
  if (HEAPTAP_UNLIKELY(block == nullptr)) return heap->TakeFreshOr<Slow>(size_class, size);
  heap->ready[size_class] = block->next;
  return block;
}

// free. `pointer` may be nullptr. What is no live block is counted and ignored if it is noticed (invalid_free.h).
[[gnu::always_inline]] inline void Free(void* pointer) {
  // SlabOf, with the bits from kAddressBits on left out. The compiler must not see that `chunk` comes from the address:
  // to shift it back is one instruction less than another mask.
  uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  uintptr_t chunk = address >> kChunkShift & (kChunkTableSize - 1);
  asm("" : "+r"(chunk));
  unsigned kind = chunk_table[chunk].load(std::memory_order_relaxed);
  if (HEAPTAP_UNLIKELY(kind <= kFreedHuge)) return FreeSlow(pointer);
  uintptr_t unit = (address & (kChunkSize - 1)) >> kind;
  Slab* slab = reinterpret_cast<Slab*>((chunk << kChunkShift) + unit * sizeof(Slab));
  uintptr_t heap = reinterpret_cast<uintptr_t>(current_heap);
  if (HEAPTAP_UNLIKELY(slab->owner.load(std::memory_order_relaxed) != heap)) return FreeSlow(pointer);
  Block* block = static_cast<Block*>(pointer);
  block->next = slab->local_free;
  slab->local_free = block;
  if (HEAPTAP_UNLIKELY(--slab->used == 0)) return FreedLastBlock(slab);
}

// calloc
void* AllocateZeroed(size_t count, size_t size);

// memalign. REQUIRES: `alignment` is a power of two.
void* AllocateAligned(size_t alignment, size_t size);

// What else may be asked of a block.
struct BlockTraits {
  size_t alignment = 1;  // a power of two
  bool zero = false;     // memory that the block did not have before reads as zero, to the end of the usable size
};

// mallocx
void* AllocateExtended(size_t size, BlockTraits traits);

// realloc and rallocx. With size 0 it frees and returns nullptr, as glibc's does. A pointer that is not the allocator's
// gives nullptr and ENOMEM. For the observer every call is a new allocation, in place or not.
void* Reallocate(void* pointer, size_t size, BlockTraits traits = {});

// xallocx: tries to make the usable size that of a block of `size` + `extra` bytes, or at least of `size`, where the
// block lies. Returns the usable size that it then has. 0 for a pointer that is not the allocator's.
//
// Only runs and huge blocks can change; a block of a slab has the size of its class for life. A change is a free and an
// allocation to the observer, as in realloc. Where nothing changes nothing was allocated, so a block that is a sample
// stays one, and one that is none stays none: jemalloc too counts such a call as neither.
size_t ResizeInPlace(void* pointer, size_t size, size_t extra, BlockTraits traits);

// malloc_usable_size: constant for the life of the block. 0 for nullptr and for pointers that are not the allocator's.
size_t UsableSize(void* pointer);

// Gives back to the system what the caller's heap, the heaps of no thread and the free units hold. What other threads
// have freed of the heap of a thread that sleeps stays there. True if anything was given back.
bool Trim();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_ALLOCATE_H_
