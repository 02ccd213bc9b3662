// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/allocate.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/collection.h"
#include "allocator/core/control.h"
#include "allocator/core/fill.h"
#include "allocator/core/huge_cache.h"
#include "allocator/core/invalid_free.h"
#include "allocator/core/large.h"
#include "allocator/core/new_block.h"
#include "allocator/core/observer.h"
#include "allocator/core/options.h"
#include "allocator/core/refill.h"
#include "allocator/core/units.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// The arena that an allocation names, or else the arena of the thread.
inline Arena& ArenaOfRequest() { return CurrentArena(); }
inline Arena& ArenaOfRequest(Arena& arena) { return arena; }

// An ordinary block, even if the countdown has ended for this allocation (`*weight` is not 0) or ends with it. nullptr:
// out of memory.
template <typename... Place>
void* TakeOrdinary(size_t size_class, uint64_t* weight, Place&... place) {
  HeapScope heap(place...);
  Heap::Taken taken{nullptr, *weight};
  if (taken.weight == 0) taken = heap->Take(size_class);
  if (taken.weight != 0) {
    *weight = taken.weight;
    // The next countdown does not count the allocation.
    heap->countdown().TakeBack(size_class, 1);
    taken = heap->Take(size_class);
    if (taken.block == nullptr && heap->countdown().Allowance(size_class) != 0)
      heap->countdown().HandOut(size_class, 1);
  }
  if (HEAPTAP_UNLIKELY(IsShared(*heap)) && taken.block != nullptr) thread_counters.allocated += kClassSize[size_class];
  return taken.block;
}

// For an allocation that has found no memory. `weight`: its weight if the observer wanted it, else 0. nullptr: out of
// memory.
template <typename... Place>
[[gnu::cold, gnu::noinline]] void* AllocateAgain(size_t size_class, uint64_t weight, Place&... place) {
  void* block = weight != 0 ? TakeOrdinary(size_class, &weight, place...) : nullptr;
  if (block == nullptr && CollectMemory()) {
    block = TakeOrdinary(size_class, &weight, place...);
    NoteCollection(block != nullptr);
  }
  if (block != nullptr && weight != 0) observer::Lost(weight);
  return block;
}

// Like AllocateAgain, for a block outside slabs.
[[gnu::cold, gnu::noinline]] void* AllocateLargeAgain(Arena& arena, size_t usable, size_t alignment, size_t requested) {
  // For a huge block, only the memory of kept huge blocks helps.
  const bool is_huge = usable > kRunMaximum;
  if (is_huge ? !PurgeHuge(0) : !CollectMemory()) return nullptr;
  void* pointer = AllocateLarge(arena, usable, alignment, requested);
  if (!is_huge) NoteCollection(pointer != nullptr);
  return pointer;
}

// `requested`: the size that the program requested. `place`: the arena, if the program names one. Inlined for the same
// reason as AllocateObserved.
template <typename... Place>
[[gnu::always_inline]] inline void* AllocateSmall(size_t size_class, size_t requested, Place&... place) {
  Heap::Taken taken;
  {
    HeapScope heap(place...);
    taken = heap->Take(size_class);
    // A shared heap does not count for its threads.
    if (HEAPTAP_UNLIKELY(IsShared(*heap)) && taken.block != nullptr)
      thread_counters.allocated += kClassSize[size_class];
  }
  void* pointer =
      taken.weight != 0 ? AllocateObserved(ArenaOfRequest(place...), size_class, taken.weight, requested) : taken.block;
  if (HEAPTAP_UNLIKELY(pointer == nullptr)) pointer = AllocateAgain(size_class, taken.weight, place...);
  if (HEAPTAP_UNLIKELY(pointer == nullptr)) return FailWithEnomem();
  FillNew(pointer, kClassSize[size_class]);
  return pointer;
}

// `usable`: a class size, or 0 if no class is large enough.
template <typename... Place>
void* AllocateOutsideSlabs(size_t usable, size_t alignment, size_t requested, Place&... place) {
  if (usable == 0) return FailWithEnomem();
  observer::BeforeUse();
  Arena& arena = ArenaOfRequest(place...);
  void* pointer = AllocateLarge(arena, usable, alignment, requested);
  if (HEAPTAP_UNLIKELY(pointer == nullptr)) pointer = AllocateLargeAgain(arena, usable, alignment, requested);
  if (pointer == nullptr) return FailWithEnomem();
  FillNew(pointer, usable);
  return pointer;
}

// Inlined into each slow path, so that samples have the same number of allocator frames on all of them.
[[gnu::always_inline]] inline void* AllocateAnySize(size_t size, size_t size_class) {
  return HEAPTAP_LIKELY(size_class < kSmallClasses) ? AllocateSmall(size_class, size)
                                                    : AllocateOutsideSlabs(RoundUpToClass(size), 1, size);
}

// Reports the free of a pointer at which no live block begins.
void RefuseInvalidFree(const void* pointer) {
  unsigned kind = ChunkKind(pointer);
  if (kind > kFreedHuge && IsUnit(SlabOf(pointer, kind))) {
    return RefuseFree(pointer, IsFreeUnit(SlabOf(pointer, kind)) ? InvalidFree::kSecond : InvalidFree::kInside);
  }
  if (IsInsideHuge(pointer)) return RefuseFree(pointer, InvalidFree::kInside);
  bool was_huge = kind == kFreedHuge && (reinterpret_cast<uintptr_t>(pointer) & (kChunkSize - 1)) == 0;
  RefuseFree(pointer, was_huge ? InvalidFree::kSecond : InvalidFree::kForeign);
}

// The rarer parts of FreeSlow are out of line, so that FreeSlow saves few registers.

[[gnu::noinline]] void FreeInFullSlab(Slab* slab, Block* block) {
  HeapScope heap;
  heap->FreeInFullSlab(slab, block);
}

// Frees a run or a block of another heap's slab, or refuses what is not a block.
[[gnu::noinline]] void FreeOfOthers(Slab* slab, Block* block) {
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == kRunOwner)
    return block == static_cast<void*>(SlabMemory(slab)) ? FreeRun(slab) : RefuseInvalidFree(block);
  if (owner == kNobody || !IsBlock(slab, block)) return RefuseInvalidFree(block);
  thread_counters.deallocated += slab->size;
  FreeRemotely(slab, block);
}

// Frees a block of a slab with any owner.
[[gnu::always_inline]] inline void FreeAny(Block* block, Slab* slab) {
  // Acquire: as in Free.
  uintptr_t owner = slab->owner.load(std::memory_order_acquire);
  if (owner == kSampledOwner) {
    thread_counters.deallocated += slab->size;
    return observer::FreeBlock(slab, block);
  }
  uintptr_t own = reinterpret_cast<uintptr_t>(current_heap);
  owner &= ~kSlowBit;
  if (owner == (own | kFullBit)) return FreeInFullSlab(slab, block);
  if (owner != own) return FreeOfOthers(slab, block);
  // Only kSlowBit brings such a block here. The steps are those of the fast path.
  if (PushLocalFree(slab, block)) FreedLastBlock(slab);
}

// Used if every free takes its slow path: checks and fills as the options ask.
[[gnu::cold, gnu::noinline]] void CheckAndFree(Block* block, Slab* slab) {
  if (!IsBlock(slab, block)) return RefuseInvalidFree(block);
  // Acquire: as in Free.
  uintptr_t owner = slab->owner.load(std::memory_order_acquire);
  bool is_own = (owner & ~(kSlowBit | kFullBit)) == reinterpret_cast<uintptr_t>(current_heap);
  if (is_own && core_options.abort_invalid_free && IsFreeBlock(slab, block)) {
    return RefuseFree(block, InvalidFree::kSecond);
  }
  if (core_options.fill_on_free) memset(static_cast<void*>(block), kFreeJunk, slab->size);
  FreeAny(block, slab);
}

}  // namespace

void* AllocateSlow(size_t size, size_t size_class) { return AllocateAnySize(size, size_class); }

void* MallocSlow(size_t size, size_t size_class) {
  return CheckXmalloc(AllocateAnySize(size, size_class), kErrorInMalloc);
}

void FreeOutsideChunks(void* pointer) {
  if (pointer == nullptr) return;
  Huge* huge = ChunkKind(pointer) == kHuge ? HugeOf(pointer) : nullptr;
  huge != nullptr ? FreeHuge(huge) : RefuseInvalidFree(pointer);
}

void FreeSlow(Block* block, Slab* slab) {
  const bool is_address = reinterpret_cast<uintptr_t>(block) >> kAddressBits == 0;
  if (HEAPTAP_UNLIKELY(!is_address)) return RefuseInvalidFree(block);
  core_options.owner_bits == 0 ? FreeAny(block, slab) : CheckAndFree(block, slab);
}

void FreedLastBlock(Slab* slab) {
  HeapScope heap;
  heap->SlabEmptied(slab);
}

void* AllocateZeroed(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return FailWithEnomem();
  void* pointer = Allocate(bytes);
  if (pointer == nullptr) return nullptr;
  Clear(pointer, bytes);
  return pointer;
}

void* AllocateAligned(size_t alignment, size_t size) {
  HEAPTAP_ASSERT(IsPowerOfTwo(alignment));
  if (alignment == 1) return Allocate(size);
  size_t usable = RoundUpToAlignedClass(size != 0 ? size : 1, alignment);
  if (!FitsSlab(usable, alignment)) return AllocateOutsideSlabs(usable, alignment, size);
  unsigned size_class = ClassOf(usable);
  void* block = current_heap->TakeReady(size_class);
  return HEAPTAP_LIKELY(block != nullptr) ? block : AllocateSmall(size_class, size);
}

void* AllocateAlignedIn(ArenaIndex index, size_t alignment, size_t size) {
  if (HEAPTAP_LIKELY(index == kOwnArena) || index == current_heap->arena) return AllocateAligned(alignment, size);
  Arena& arena = ArenaOf(index);
  const size_t usable = RoundUpToAlignedClass(size != 0 ? size : 1, alignment);
  if (!FitsSlab(usable, alignment)) return AllocateOutsideSlabs(usable, alignment, size, arena);
  return AllocateSmall(ClassOf(usable), size, arena);
}

void* AllocateExtended(size_t size, BlockTraits traits) {
  HEAPTAP_ASSERT(traits.arena == kOwnArena || traits.arena < ArenaCount());
  void* pointer = AllocateAlignedIn(traits.arena, traits.alignment, size);
  if (traits.zero && pointer != nullptr) Clear(pointer, UsableSize(pointer));
  return pointer;
}

size_t UsableSize(void* pointer) {
  unsigned kind = ChunkKind(pointer);
  if (kind == kForeign || kind == kFreedHuge) return 0;
  if (kind == kHuge) {
    Huge* huge = HugeOf(pointer);
    return huge != nullptr ? huge->size : 0;
  }
  Slab* slab = SlabOf(pointer, kind);
  return slab->owner.load(std::memory_order_relaxed) == kNobody ? 0 : slab->size;
}

ArenaIndex ArenaOfBlock(void* pointer) {
  HEAPTAP_ASSERT(UsableSize(pointer) != 0);
  const unsigned kind = ChunkKind(pointer);
  return kind == kHuge ? HugeOf(pointer)->arena : SlabOf(pointer, kind)->arena;
}

bool Trim() {
  ScavengeHeaps();
  observer::Trim();
  return Purge(0);
}

}  // namespace heaptap
