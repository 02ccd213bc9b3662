// SPDX-License-Identifier: Apache-2.0
#include "allocate.h"

#include <errno.h>
#include <string.h>

#include "large.h"
#include "sample_events.h"
#include "sampled.h"
#include "statistics.h"
#include "system.h"
#include "units.h"

namespace heaptap {
namespace {

void* OutOfMemory() {
  errno = ENOMEM;
  return nullptr;
}

void* AllocateSample(unsigned size_class, uint64_t weight, size_t requested) {
  void* pointer = TakeSampledBlock(size_class, requested);
  if (pointer == nullptr) return OutOfMemory();
  thread_counters.allocated += kClassSize[size_class];
  SampleAllocated(pointer, kClassSize[size_class], weight, requested);
  return pointer;
}

void* AllocateSmall(size_t size) {
  const unsigned size_class = ClassOf(size);
  Heap::Taken taken;
  {
    HeapScope heap;
    taken = heap->Take(size_class);
    // Nobody else counts for the late heap's threads.
    if (heap->counters == nullptr && taken.block != nullptr) thread_counters.allocated += kClassSize[size_class];
  }
  if (taken.weight != 0) return AllocateSample(size_class, taken.weight, size);
  return taken.block != nullptr ? taken.block : OutOfMemory();
}

void* AllocateClass(size_t usable, size_t alignment, size_t requested) {
  if (usable == 0) return OutOfMemory();
  void* pointer = AllocateLarge(usable, alignment, requested);
  return pointer != nullptr ? pointer : OutOfMemory();
}

void IgnoreForeign(void* pointer) {
  static constinit std::atomic<bool> reported;
  AddToFigure(&heaptap_statistics::foreign_frees, 1);
  if (reported.exchange(true, std::memory_order_relaxed)) return;
  constexpr char kDigits[] = "0123456789abcdef";
  char address[2 * sizeof(void*)];
  for (size_t i = 0; i < sizeof(address); i++) {
    address[i] = kDigits[reinterpret_cast<uintptr_t>(pointer) >> (4 * (sizeof(address) - 1 - i)) & 15];
  }
  Message message;
  message << "<heaptap>: Ignored a free of 0x";
  message.Append(address, sizeof(address)) << ", which another allocator has made (said once)\n";
  message.Print();
}

// Puts a block that could stay in its place to the test: its weight if it is a sample all the same, else 0.
uint64_t TestInPlace(unsigned size_class) {
  HeapScope heap;
  heap->FollowRate();
  return heap->sampler.TestInPlace(kClassSize[size_class]) ? heap->sampler.Weight(size_class) : 0;
}

// realloc that changes nothing counts as a free and an allocation all the same.
void CountInPlace(size_t usable) {
  thread_counters.allocated += usable;
  thread_counters.deallocated += usable;
}

void* MoveBlock(void* pointer, void* target, size_t size) {
  if (target == nullptr) return nullptr;
  memcpy(target, pointer, size);
  Free(pointer);
  return target;
}

// realloc of a block of a slab.
void* ReallocateSmall(Slab* slab, void* pointer, size_t size) {
  size_t usable = slab->size;
  bool sampled = slab->owner.load(std::memory_order_relaxed) == kSampledOwner;
  // A sampled block never stays: whether it is a sample again is for the new allocation to find out.
  if (!sampled && RoundUpToClass(size) == usable) {
    uint64_t weight = TestInPlace(slab->size_class);
    if (weight == 0) CountInPlace(usable);
    return weight == 0 ? pointer : MoveBlock(pointer, AllocateSample(slab->size_class, weight, size), size);
  }
  return MoveBlock(pointer, Allocate(size), size < usable ? size : usable);
}

void* ReallocateHuge(Huge* huge, void* pointer, size_t size) {
  size_t wanted = RoundUpToClass(size);
  if (wanted == 0) return OutOfMemory();
  if (ResizeHuge(huge, wanted, size)) return pointer;
  if (wanted > kRunMaximum) {
    void* target = MoveHuge(huge, wanted, size);
    if (target != nullptr) return target;
  }
  return MoveBlock(pointer, Allocate(size), size < huge->size ? size : huge->size);
}

void* ReallocateRun(Slab* run, void* pointer, size_t size) {
  size_t wanted = RoundUpToClass(size);
  if (wanted == 0) return OutOfMemory();
  bool stays = wanted > kSmallMaximum || wanted == run->size;
  if (stays && ResizeRun(run, wanted, size)) return pointer;
  return MoveBlock(pointer, Allocate(size), size < run->size ? size : run->size);
}

}  // namespace

void* AllocateSlow(size_t size) {
  return size <= kSmallMaximum ? AllocateSmall(size) : AllocateClass(RoundUpToClass(size), 1, size);
}

void FreeSlow(void* pointer) {
  if (pointer == nullptr) return;
  unsigned kind = ChunkKind(pointer);
  if (kind == kForeign) return IgnoreForeign(pointer);
  if (kind == kHuge) {
    Huge* huge = HugeOf(pointer);
    return huge != nullptr ? FreeHuge(huge) : IgnoreForeign(pointer);
  }
  Slab* slab = SlabOf(pointer, kind);
  Block* block = static_cast<Block*>(pointer);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == kNobody) return IgnoreForeign(pointer);
  if (owner == kSampledOwner) {
    thread_counters.deallocated += slab->size;
    SampleFreed(pointer, slab->size, RequestedSize(slab, block));
    return ReturnSampledBlock(slab, block);
  }
  if (owner == kRunOwner) return FreeRun(slab);
  if (owner == (reinterpret_cast<uintptr_t>(current_heap) | kFullBit)) {
    HeapScope heap;
    return heap->FreeInFullSlab(slab, block);
  }
  thread_counters.deallocated += slab->size;
  SharedCount& frees = current_heap->counts[slab->size_class].remote_frees;
  current_heap == &empty_heap ? frees.AddShared(1) : frees.Add(1);
  FreeRemotely(slab, block);
}

void FreedLastBlock(Slab* slab) {
  HeapScope heap;
  heap->SlabEmptied(slab);
}

void* AllocateZeroed(size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) return OutOfMemory();
  void* pointer = Allocate(bytes);
  if (pointer == nullptr) return nullptr;
  unsigned kind = ChunkKind(pointer);
  if (kind == kHuge) return pointer;
  Slab* slab = SlabOf(pointer, kind);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == reinterpret_cast<uintptr_t>(current_heap) && slab->fresh) {
    static_cast<Block*>(pointer)->next = nullptr;
  } else if (owner != kRunOwner || !slab->fresh) {
    memset(pointer, 0, bytes);
  }
  return pointer;
}

void* AllocateAligned(size_t alignment, size_t size) {
  size_t usable = RoundUpToAlignedClass(size != 0 ? size : 1, alignment);
  if (usable <= kSmallMaximum && usable != 0 && usable % alignment == 0) return Allocate(usable);
  return AllocateClass(usable, alignment, size);
}

void* Reallocate(void* pointer, size_t size) {
  if (pointer == nullptr) return Allocate(size);
  if (size == 0) {
    Free(pointer);
    return nullptr;
  }
  unsigned kind = ChunkKind(pointer);
  if (kind == kForeign) return OutOfMemory();
  if (kind == kHuge) {
    Huge* huge = HugeOf(pointer);
    return huge != nullptr ? ReallocateHuge(huge, pointer, size) : OutOfMemory();
  }
  Slab* slab = SlabOf(pointer, kind);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  if (owner == kNobody) return OutOfMemory();
  return owner == kRunOwner ? ReallocateRun(slab, pointer, size) : ReallocateSmall(slab, pointer, size);
}

size_t UsableSize(void* pointer) {
  unsigned kind = ChunkKind(pointer);
  if (kind == kForeign) return 0;
  if (kind == kHuge) {
    Huge* huge = HugeOf(pointer);
    return huge != nullptr ? huge->size : 0;
  }
  Slab* slab = SlabOf(pointer, kind);
  return slab->owner.load(std::memory_order_relaxed) == kNobody ? 0 : slab->size;
}

bool Trim() {
  ScavengeHeaps();
  TrimSampledPools();
  return Purge(0);
}

}  // namespace heaptap
