// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/samples.h"

#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/control.h"
#include "allocator/core/invalid_free.h"
#include "allocator/core/observer.h"
#include "allocator/core/size_class.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/guest/countdown.h"
#include "allocator/guest/early_blocks.h"
#include "allocator/guest/range.h"
#include "allocator/guest/start.h"

namespace heaptap {
namespace {

constexpr size_t kUnit = size_t{1} << kShortShift;

// The class whose slabs have such blocks. kSmallClasses: none has.
unsigned ClassFor(size_t usable, size_t alignment) {
  // Blocks of a slab are as aligned as their size.
  const size_t size = RoundUpToAlignedClass(usable, alignment);
  return size <= kSmallMaximum && size % alignment == 0 ? ClassOf(size) : kSmallClasses;
}

// Samples of this size are counted like the large blocks of the full library.
void CountLarge(int64_t samples, size_t usable) {
  AddToFigure(&heaptap_statistics::sampled_objects, samples);
  AddToFigure(&heaptap_statistics::large, samples * static_cast<int64_t>(usable));
}

void* TakeRun(size_t usable, size_t alignment, uint64_t serial) {
  Slab* run = AllocateUnits(kShortShift, (usable + kUnit - 1) / kUnit, alignment < kUnit ? 1 : alignment / kUnit);
  if (run == nullptr) return nullptr;
  run->size = usable;
  run->sample = serial;
  void* pointer = SlabMemory(run);
  if (!run->fresh) memset(pointer, 0, usable);
  // Release: a thread that gets the pointer finds the rest.
  run->owner.store(kRunOwner, std::memory_order_release);
  CountLarge(1, usable);
  return pointer;
}

void* TakeHuge(size_t usable, size_t alignment, uint64_t serial) {
  void* pointer = TakeHugeSample(usable, alignment, serial);
  if (pointer != nullptr) CountLarge(1, usable);
  return pointer;
}

// A block with at least `usable` bytes. With traits.zero these read as zero.
void* TakeBlock(size_t usable, const SampleTraits& traits, uint64_t serial) {
  const unsigned size_class = ClassFor(usable, traits.alignment);
  if (size_class != kSmallClasses) {
    void* pointer = observer::TakeBlock(main_arena, size_class, usable, serial);
    if (pointer != nullptr && traits.zero) memset(pointer, 0, usable);
    return pointer;
  }
  const bool fits = usable <= kRunMaximum && traits.alignment < kRunMaximum;
  return fits ? TakeRun(usable, traits.alignment, serial) : TakeHuge(usable, traits.alignment, serial);
}

// A block of the range, as its pointer tells. Exactly one of `slab` and `huge` is not nullptr, or both are: no block
// begins there.
struct Found {
  Slab* slab;
  HugeSample* huge;
  uint64_t serial;
  size_t usable;
};

Found Find(const void* pointer) {
  const unsigned kind = ChunkKind(pointer);
  if (kind <= kFreedHuge) {
    HugeSample* huge = FindHugeSample(pointer);
    return huge == nullptr ? Found{} : Found{nullptr, huge, huge->serial, huge->usable};
  }
  Slab* slab = SlabOf(pointer, kind);
  if (!IsBlock(slab, pointer)) return {};
  if (slab->owner.load(std::memory_order_acquire) == kRunOwner) return {slab, nullptr, slab->sample, slab->size};
  const observer::Sample sample = observer::SampleOf(slab, static_cast<const Block*>(pointer));
  return {slab, nullptr, sample.serial, sample.requested};
}

}  // namespace

void* TakeSample(size_t size, SampleTraits traits) {
  StartGuest();
  // The host refuses such a size.
  if (size > kMaximumRequest) return nullptr;
  const Decision decision = Decide(size, traits.alignment);
  if (decision.weight == 0) return nullptr;
  const uint64_t serial = observer::NextSerial();
  void* pointer = TakeBlock(decision.usable, traits, serial);
  if (pointer == nullptr) return nullptr;
  observer::Allocated(pointer, {decision.usable, size, serial}, decision.weight);
  return pointer;
}

void FreeSample(void* pointer) {
  const Found found = Find(pointer);
  if (found.slab == nullptr && found.huge == nullptr) {
    return RefuseFree(pointer, InvalidFree::kInside);
  }
  if (found.serial != kNoSample) {
    // Gives the thread a heap, whose slot can hold the news of the free back.
    TickSlowPath();
    observer::Freed(pointer, {found.usable, found.usable, found.serial});
  }
  if (found.huge != nullptr) {
    CountLarge(-1, found.usable);
    return ReturnHugeSample(found.huge);
  }
  if (found.slab->owner.load(std::memory_order_relaxed) == kRunOwner) {
    CountLarge(-1, found.usable);
    return ReleaseUnits(found.slab);
  }
  if (found.serial == kNoSample) AddToFigure(&heaptap_statistics::sampled_objects, 1);
  observer::ReturnBlock(found.slab, static_cast<Block*>(pointer));
}

size_t SampleUsableSize(const void* pointer) { return Find(pointer).usable; }

}  // namespace heaptap
