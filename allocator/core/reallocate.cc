// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/allocate.h"
#include "allocator/core/fill.h"
#include "allocator/core/large.h"
#include "allocator/core/new_block.h"
#include "allocator/core/observer.h"
#include "allocator/core/units.h"

namespace heaptap {
namespace {

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

}  // namespace

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

}  // namespace heaptap
