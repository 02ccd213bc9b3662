// SPDX-License-Identifier: Apache-2.0
//
// The allocator's functions under heaptap's own names; api/ exports them under libc's. Any thread may call any of them
// at any time, from the first instruction of the process on. Errors: nullptr and errno ENOMEM; otherwise errno is kept.
// Sizes are bytes; any size is allowed.
//
//   Allocate            pop the heap's ready list, or
//                       take the heap's next fresh block, or
//     AllocateSlow      small: Heap::Take (refill), or, if it is a sample, a block from the observer
//                       larger: AllocateLarge (large.h), which calls the observer itself
//   Free                push on the slab's local_free, or
//     FreeOutsideChunks nullptr, foreign, huge
//     FreeSlow          sampled, run, full slab, another thread's block, or kSlowBit
//     FreedLastBlock    the slab became empty
//
// The two fast paths contain nothing about sampling: their instructions are the same whether it is on or off.
#ifndef HEAPTAP_ALLOCATOR_CORE_ALLOCATE_H_
#define HEAPTAP_ALLOCATOR_CORE_ALLOCATE_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/thread.h"

namespace heaptap {

void* AllocateSlow(size_t size, size_t size_class);
void* MallocSlow(size_t size, size_t size_class);  // the same for malloc itself, which obeys xmalloc
void FreeOutsideChunks(void* pointer);
// `slab`: the descriptor that Free computes, which ignores the bits of the address from kAddressBits on.
void FreeSlow(Block* block, Slab* slab);
void FreedLastBlock(Slab* slab);

// A block of the class, or else the result of `Slow`. Taking a fresh block is part of the fast path, and not of `Slow`,
// because most mallocs of a growing program take one. `step`: the step of the table that the class comes from.
template <size_t step, SlowPath Slow>
[[gnu::always_inline]] inline void* TakeReadyOr(size_t size_class, size_t size) {
  Heap* heap = current_heap;
  Block* block = heap->ready[size_class];
  if (HEAPTAP_UNLIKELY(block == nullptr)) {
    asm("" : "+r"(heap));  // see the asm below
    return heap->TakeFreshOr<Slow>(size_class, size);
  }
  // The asm hides three facts from the compiler, each of which would cost one more instruction: `heap` is unchanged, so
  // the compiler would compute the list's address in advance; `block` need not be in the result register yet; and the
  // code is the same for both tables, so the compiler would jump from one copy to the other.
  asm("" : "+r"(heap), "+a"(block) : "i"(step));
  heap->ready[size_class] = block->next;
  return block;
}

// malloc. `Slow` is called when no block is ready.
template <SlowPath Slow = AllocateSlow>
[[gnu::always_inline]] inline void* Allocate(size_t size) {
  if (HEAPTAP_LIKELY(size <= kFineMaximum)) return TakeReadyOr<1, Slow>(kFineTable[size], size);
  if (HEAPTAP_UNLIKELY(size > kSmallMaximum)) return Slow(size, kSmallClasses);
  return TakeReadyOr<kCoarseStep, Slow>(kCoarseTable[(size + kCoarseStep - 1) / kCoarseStep], size);
}

// free. `pointer` may be nullptr. An invalid free is counted and ignored if it is noticed (invalid_free.h).
[[gnu::always_inline]] inline void Free(void* pointer) {
  // SlabOf, but ignoring the bits from kAddressBits on. The asm hides from the compiler that `chunk` comes from the
  // address: shifting it back takes one instruction fewer than masking the address.
  uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  uintptr_t chunk = address >> kChunkShift & (kChunkTableSize - 1);
  asm("" : "+r"(chunk));
  unsigned kind = chunk_table[chunk].load(std::memory_order_relaxed);
  if (HEAPTAP_UNLIKELY(kind <= kFreedHuge)) return FreeOutsideChunks(pointer);
  uintptr_t unit = (address & (kChunkSize - 1)) >> kind;
  Slab* slab = reinterpret_cast<Slab*>((chunk << kChunkShift) + unit * sizeof(Slab));
  uintptr_t heap = reinterpret_cast<uintptr_t>(current_heap);
  Block* block = static_cast<Block*>(pointer);
  if (HEAPTAP_UNLIKELY(slab->owner.load(kOwnerOrder) != heap)) return FreeSlow(block, slab);
  Fence(std::memory_order_acquire);  // see kOwnerOrder
  if (HEAPTAP_UNLIKELY(PushLocalFree(slab, block))) return FreedLastBlock(slab);
}

// calloc
void* AllocateZeroed(size_t count, size_t size);

// memalign. REQUIRES: `alignment` is a power of two.
void* AllocateAligned(size_t alignment, size_t size);

// A value of BlockTraits::arena: the arena of the calling thread.
inline constexpr ArenaIndex kOwnArena = UINT16_MAX;
static_assert(kOwnArena >= kMostArenas);

// The properties of a requested block besides its size.
struct BlockTraits {
  size_t alignment = 1;  // a power of two
  bool zero = false;     // new memory reads as zero, up to the end of the usable size
  ArenaIndex arena = kOwnArena;
};

// mallocx. REQUIRES: the arena exists.
void* AllocateExtended(size_t size, BlockTraits traits);

// realloc and rallocx. Size 0 frees the block and returns nullptr, as in glibc. A pointer that is not the allocator's
// yields nullptr and ENOMEM. For the observer every call is a new allocation, in place or not.
void* Reallocate(void* pointer, size_t size, BlockTraits traits = {});

// xallocx: tries to change the block in place to the usable size of `size` + `extra` bytes, or else of `size`. Returns
// the usable size that the block then has. 0 for a pointer that is not the allocator's.
//
// Only runs and huge blocks can change; a block of a slab keeps the size of its class. For the observer a change is a
// free and an allocation, as in realloc. A call that changes nothing is neither, as in jemalloc: a sample stays a
// sample, and any other block stays as it is.
size_t ResizeInPlace(void* pointer, size_t size, size_t extra, BlockTraits traits);

// malloc_usable_size. Constant unless the block is resized. 0 for nullptr and pointers that are not the allocator's.
size_t UsableSize(void* pointer);

// The arena of a block. REQUIRES: its UsableSize is not 0.
ArenaIndex ArenaOfBlock(void* pointer);

// Returns free memory to the system: the free memory of the caller's heap, of parked heaps and of free units; and, from
// the heaps of other threads, the blocks that were freed there remotely. These blocks stay if the thread is in a slow
// path, or if the kernel has no membarrier(2). True if any memory was returned.
bool Trim();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_ALLOCATE_H_
