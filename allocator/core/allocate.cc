// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/allocate.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/collection.h"
#include "allocator/core/control.h"
#include "allocator/core/huge_cache.h"
#include "allocator/core/invalid_free.h"
#include "allocator/core/large.h"
#include "allocator/core/observer.h"
#include "allocator/core/options.h"
#include "allocator/core/refill.h"
#include "allocator/core/units.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

void* FailWithEnomem() {
  errno = ENOMEM;
  return nullptr;
}

// How many bytes of a newly allocated block may have other contents than zeros; all further ones read as zero.
size_t UnknownBytes(void* pointer) {
  unsigned kind = ChunkKind(pointer);
  bool junk = core_options.fill_on_allocation == FillOnAllocation::kJunk;
  if (kind == kHuge) return junk ? SIZE_MAX : HugeOf(pointer)->written;
  Slab* slab = SlabOf(pointer, kind);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  bool reads_as_zero =
      owner == reinterpret_cast<uintptr_t>(current_heap) ? slab->fresh : owner == kRunOwner && slab->fresh && !junk;
  return reads_as_zero ? 0 : SIZE_MAX;
}

// Makes a part of a newly allocated block read as zero, from `kept` to `end`.
void ClearAfter(void* pointer, size_t kept, size_t end) {
  size_t unknown = UnknownBytes(pointer);
  if (unknown < end) end = unknown;
  if (kept < end) memset(static_cast<char*>(pointer) + kept, 0, end - kept);
}

// Makes a newly allocated block read as zero.
void Clear(void* pointer, size_t bytes) { ClearAfter(pointer, 0, bytes); }

// Fills a newly allocated block if the options ask for it.
[[gnu::cold, gnu::noinline]] void Fill(void* pointer) {
  const size_t usable = UsableSize(pointer);
  if (core_options.fill_on_allocation == FillOnAllocation::kJunk) {
    memset(pointer, kAllocationJunk, usable);
  } else {
    Clear(pointer, usable);
  }
}
inline void FillNew(void* pointer) {
  if (HEAPTAP_UNLIKELY(core_options.fill_on_allocation != FillOnAllocation::kNothing)) Fill(pointer);
}

// Fills the part by which a block has grown in place. `is_zero`: this part already reads as zero. `zero`: it must.
void FillGrown(void* pointer, size_t old_usable, size_t usable, bool is_zero, bool zero) {
  if (usable <= old_usable) return;
  char* grown = static_cast<char*>(pointer) + old_usable;
  if (zero || core_options.fill_on_allocation == FillOnAllocation::kZero) {
    if (!is_zero) memset(grown, 0, usable - old_usable);
  } else if (core_options.fill_on_allocation == FillOnAllocation::kJunk) {
    memset(grown, kAllocationJunk, usable - old_usable);
  }
}

// An allocation that the observer wants. nullptr: there is no memory for it. Inlined: a frame of the allocator costs
// one of the program on deep stacks.
[[gnu::always_inline]] inline void* AllocateObserved(Arena& arena, unsigned size_class, uint64_t weight,
                                                     size_t requested) {
  // Before the observer reads it.
  thread_counters.allocated += kClassSize[size_class];
  void* pointer = observer::AllocateBlock(arena, size_class, requested, weight);
  if (HEAPTAP_LIKELY(pointer != nullptr)) return pointer;
  thread_counters.allocated -= kClassSize[size_class];
  return nullptr;
}

// The arena of an allocation that names one, or else that of the thread.
inline Arena& ArenaOfRequest() { return CurrentArena(); }
inline Arena& ArenaOfRequest(Arena& arena) { return arena; }

// An ordinary block, also if the countdown has ended for this allocation (`*weight` is not 0) or ends with it. nullptr:
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

// For an allocation that has found no memory, with its weight if the observer wanted it. nullptr: out of memory.
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

// The same for a large block.
[[gnu::cold, gnu::noinline]] void* AllocateLargeAgain(Arena& arena, size_t usable, size_t alignment, size_t requested) {
  // Only what is kept helps a huge one.
  const bool is_huge = usable > kRunMaximum;
  if (is_huge ? !PurgeHuge(0) : !CollectMemory()) return nullptr;
  void* pointer = AllocateLarge(arena, usable, alignment, requested);
  if (!is_huge) NoteCollection(pointer != nullptr);
  return pointer;
}

// `requested`: the size that the program requested. `place`: the arena, if the program names one. Inlined as
// AllocateObserved.
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
  FillNew(pointer);
  return pointer;
}

// `usable`: a class size; 0: there is none.
template <typename... Place>
void* AllocateOutsideSlabs(size_t usable, size_t alignment, size_t requested, Place&... place) {
  if (usable == 0) return FailWithEnomem();
  observer::BeforeUse();
  Arena& arena = ArenaOfRequest(place...);
  void* pointer = AllocateLarge(arena, usable, alignment, requested);
  if (HEAPTAP_UNLIKELY(pointer == nullptr)) pointer = AllocateLargeAgain(arena, usable, alignment, requested);
  if (pointer == nullptr) return FailWithEnomem();
  FillNew(pointer);
  return pointer;
}

// Inlined into each slow path, so that samples have the same number of allocator frames on all of them.
[[gnu::always_inline]] inline void* AllocateAnySize(size_t size, size_t size_class) {
  return HEAPTAP_LIKELY(size_class < kSmallClasses) ? AllocateSmall(size_class, size)
                                                    : AllocateOutsideSlabs(RoundUpToClass(size), 1, size);
}

// For a realloc that can keep its block: the weight if the observer wants this allocation, else 0.
uint64_t SampleInPlace(unsigned size_class) {
  HeapScope heap;
  observer::BeforeAllocation(&*heap);
  return observer::WeighInPlace(&*heap, size_class);
}

// A realloc that keeps its block counts as a free and an allocation.
void CountInPlace(size_t usable) {
  thread_counters.allocated += usable;
  thread_counters.deallocated += usable;
}

bool IsAligned(const void* pointer, size_t alignment) {
  return (reinterpret_cast<uintptr_t>(pointer) & (alignment - 1)) == 0;
}

// Whether blocks of this usable size lie in slabs, and all of them have this alignment.
bool FitsSlab(size_t usable, size_t alignment) {
  return usable != 0 && usable <= kSmallMaximum && usable % alignment == 0;
}

void* MoveBlock(void* pointer, void* target, size_t bytes) {
  if (target == nullptr) return nullptr;
  memcpy(target, pointer, bytes);
  Free(pointer);
  return target;
}

// The block that realloc is to return.
struct TargetBlock {
  size_t size;
  size_t usable;  // the size of its class
  BlockTraits traits;
};

// The arena of this index, or else that of the calling thread.
Arena& Named(ArenaIndex index) { return index != kOwnArena ? ArenaOf(index) : CurrentArena(); }

// AllocateAligned in the arena.
void* AllocateAlignedIn(ArenaIndex index, size_t alignment, size_t size) {
  if (HEAPTAP_LIKELY(index == kOwnArena) || index == current_heap->arena) return AllocateAligned(alignment, size);
  Arena& arena = ArenaOf(index);
  const size_t usable = RoundUpToAlignedClass(size != 0 ? size : 1, alignment);
  if (!FitsSlab(usable, alignment)) return AllocateOutsideSlabs(usable, alignment, size, arena);
  return AllocateSmall(ClassOf(usable), size, arena);
}

// realloc by copying to a new block. `usable`: the usable size of the old one.
void* MoveToNewBlock(void* pointer, size_t usable, const TargetBlock& wanted) {
  void* target = AllocateAlignedIn(wanted.traits.arena, wanted.traits.alignment, wanted.size);
  if (target == nullptr) return nullptr;
  if (!wanted.traits.zero) return MoveBlock(pointer, target, wanted.size < usable ? wanted.size : usable);
  size_t kept = wanted.usable < usable ? wanted.usable : usable;
  ClearAfter(target, kept, wanted.usable);
  return MoveBlock(pointer, target, kept);
}

void* ReallocateSmall(Slab* slab, void* pointer, const TargetBlock& wanted) {
  bool sampled = slab->owner.load(std::memory_order_relaxed) == kSampledOwner;
  // A sampled block always moves, and the sampler decides about the new block. A block that is aligned by
  // chance moves too, since the observer could not give it an aligned block.
  if (!sampled && wanted.usable == slab->size && FitsSlab(wanted.usable, wanted.traits.alignment)) {
    uint64_t weight = SampleInPlace(slab->size_class);
    void* target =
        weight != 0 ? AllocateObserved(ArenaOf(slab->arena), slab->size_class, weight, wanted.size) : nullptr;
    if (target != nullptr) return MoveBlock(pointer, target, wanted.usable);
    // Not a sample, or no memory for one.
    if (weight != 0) observer::Lost(weight);
    CountInPlace(wanted.usable);
    return pointer;
  }
  return MoveToNewBlock(pointer, slab->size, wanted);
}

void* ReallocateHuge(Huge* huge, void* pointer, const TargetBlock& wanted) {
  size_t usable = huge->size;
  // A mapping takes much address space, so a block that becomes small enough for a run moves.
  bool stays = wanted.usable > kRunMaximum || wanted.usable == usable;
  bool resized = stays && IsAligned(pointer, wanted.traits.alignment) && ResizeHuge(huge, wanted.usable, wanted.size);
  void* target = resized ? pointer : nullptr;
  if (!resized && wanted.usable > kRunMaximum && wanted.traits.alignment <= kChunkSize)
    target = MoveHuge(Named(wanted.traits.arena), huge, wanted.usable, wanted.size);
  if (target == nullptr) return MoveToNewBlock(pointer, usable, wanted);
  FillGrown(target, usable, wanted.usable, true, wanted.traits.zero);
  return target;
}

void* ReallocateRun(Slab* run, void* pointer, const TargetBlock& wanted) {
  size_t usable = run->size;
  bool stays = wanted.usable > kSmallMaximum || wanted.usable == usable;
  if (!stays || !IsAligned(pointer, wanted.traits.alignment) || !ResizeRun(run, wanted.usable, wanted.size)) {
    return MoveToNewBlock(pointer, usable, wanted);
  }
  FillGrown(pointer, usable, wanted.usable, false, wanted.traits.zero);
  return pointer;
}

// Changes the usable size of a run in place, or of a huge block if `run` is nullptr.
bool ResizeLarge(Slab* run, Huge* huge, void* pointer, size_t wanted, size_t requested, bool zero) {
  size_t usable = run != nullptr ? run->size : huge->size;
  if (run != nullptr ? !ResizeRun(run, wanted, requested) : !ResizeHuge(huge, wanted, requested)) return false;
  FillGrown(pointer, usable, wanted, run == nullptr, zero);
  return true;
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

// The rarer parts of FreeSlow are out of line, so that it saves few registers.

[[gnu::noinline]] void FreeInFullSlab(Slab* slab, Block* block) {
  HeapScope heap;
  heap->FreeInFullSlab(slab, block);
}

// A run, the block of another heap, or no block at all.
[[gnu::noinline]] void FreeOfOthers(Slab* slab, Block* block) {
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == kRunOwner)
    return block == static_cast<void*>(SlabMemory(slab)) ? FreeRun(slab) : RefuseInvalidFree(block);
  if (owner == kNobody || !IsBlock(slab, block)) return RefuseInvalidFree(block);
  thread_counters.deallocated += slab->size;
  FreeRemotely(slab, block);
}

[[gnu::always_inline]] inline void FreeByOwner(Block* block, Slab* slab) {
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
  // Only kSlowBit brings such a block here. The same steps as on the fast path.
  if (PushLocalFree(slab, block)) FreedLastBlock(slab);
}

// If every free takes its slow path: checks and fills as the options ask.
[[gnu::cold, gnu::noinline]] void CheckAndFree(Block* block, Slab* slab) {
  if (!IsBlock(slab, block)) return RefuseInvalidFree(block);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  bool is_own = (owner & ~(kSlowBit | kFullBit)) == reinterpret_cast<uintptr_t>(current_heap);
  if (is_own && core_options.abort_invalid_free && IsFreeBlock(slab, block)) {
    return RefuseFree(block, InvalidFree::kSecond);
  }
  if (core_options.fill_on_free) memset(static_cast<void*>(block), kFreeJunk, slab->size);
  FreeByOwner(block, slab);
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
  core_options.owner_bits == 0 ? FreeByOwner(block, slab) : CheckAndFree(block, slab);
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
  if (alignment == 1) return Allocate(size);
  size_t usable = RoundUpToAlignedClass(size != 0 ? size : 1, alignment);
  if (!FitsSlab(usable, alignment)) return AllocateOutsideSlabs(usable, alignment, size);
  unsigned size_class = ClassOf(usable);
  void* block = current_heap->TakeReady(size_class);
  return HEAPTAP_LIKELY(block != nullptr) ? block : AllocateSmall(size_class, size);
}

void* AllocateExtended(size_t size, BlockTraits traits) {
  void* pointer = AllocateAlignedIn(traits.arena, traits.alignment, size);
  if (traits.zero && pointer != nullptr) Clear(pointer, UsableSize(pointer));
  return pointer;
}

void* Reallocate(void* pointer, size_t size, BlockTraits traits) {
  if (pointer == nullptr) return AllocateExtended(size, traits);
  if (size == 0) {
    Free(pointer);
    return nullptr;
  }
  unsigned kind = ChunkKind(pointer);
  TargetBlock wanted{size, RoundUpToAlignedClass(size, traits.alignment), traits};
  if (kind == kForeign || kind == kFreedHuge || wanted.usable == 0) return FailWithEnomem();
  if (kind == kHuge) {
    Huge* huge = HugeOf(pointer);
    return huge != nullptr ? ReallocateHuge(huge, pointer, wanted) : FailWithEnomem();
  }
  Slab* slab = SlabOf(pointer, kind);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == kNobody) return FailWithEnomem();
  return owner == kRunOwner ? ReallocateRun(slab, pointer, wanted) : ReallocateSmall(slab, pointer, wanted);
}

size_t ResizeInPlace(void* pointer, size_t size, size_t extra, BlockTraits traits) {
  size_t usable = UsableSize(pointer);
  if (usable == 0 || size > kLargestClass || !IsAligned(pointer, traits.alignment)) return usable;
  size_t room = kLargestClass - size;
  size_t least = RoundUpToClass(size);
  size_t most = RoundUpToClass(size + (extra < room ? extra : room));
  // A large block stays large, as in jemalloc.
  if (most < kLargeMinimum) return usable;

  unsigned kind = ChunkKind(pointer);
  Slab* run = kind == kHuge ? nullptr : SlabOf(pointer, kind);
  Huge* huge = kind == kHuge ? HugeOf(pointer) : nullptr;
  if (run != nullptr && run->owner.load(std::memory_order_relaxed) != kRunOwner) return usable;
  if (most != usable && ResizeLarge(run, huge, pointer, most, size, traits.zero)) return most;
  bool next_best = least > usable && least < most;
  if (next_best && ResizeLarge(run, huge, pointer, least, size, traits.zero)) return least;
  return usable;
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
  const unsigned kind = ChunkKind(pointer);
  return kind == kHuge ? HugeOf(pointer)->arena : SlabOf(pointer, kind)->arena;
}

bool Trim() {
  ScavengeHeaps();
  observer::Trim();
  return Purge(0);
}

}  // namespace heaptap
