// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/samples.h"

#include <errno.h>
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
#include "allocator/guest/copy.h"
#include "allocator/guest/decision.h"
#include "allocator/guest/early_blocks.h"
#include "allocator/guest/host.h"
#include "allocator/guest/range.h"
#include "allocator/guest/start.h"
#include "allocator/guest/thread.h"
#include "allocator/guest/usable_size.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

constexpr size_t kUnit = size_t{1} << kShortShift;

// From this size on, glibc gives each block its own mapping, and unmaps it when the block is freed.
constexpr size_t kUnmapped = size_t{128} << 10;

// The class whose slabs have such blocks. kSmallClasses: no class has such blocks.
unsigned ClassFor(size_t usable, size_t alignment) {
  // Blocks of a slab are as aligned as their size.
  const size_t size = RoundUpToAlignedClass(usable, alignment);
  return size != 0 && size <= kSmallMaximum && size % alignment == 0 ? ClassOf(size) : kSmallClasses;
}

// Counts a block that is in no slab, like the large blocks of the full library.
void CountLarge(bool begins, size_t usable, uint64_t serial) {
  const int64_t sign = begins ? 1 : -1;
  if (serial != kNoSample) AddToFigure(&heaptap_statistics::sampled_objects, sign);
  AddToFigure(&heaptap_statistics::large, sign * static_cast<int64_t>(usable));
}

void* TakeRun(size_t usable, size_t alignment, bool zero, uint64_t serial) {
  Slab* run = AllocateUnits(kShortShift, (usable + kUnit - 1) / kUnit, alignment < kUnit ? 1 : alignment / kUnit);
  if (run == nullptr) return nullptr;
  run->size = usable;
  run->sample = serial;
  void* pointer = SlabMemory(run);
  if (zero && !run->fresh) memset(pointer, 0, usable);
  // Release: a thread that gets the pointer finds the rest.
  run->owner.store(kRunOwner, std::memory_order_release);
  CountLarge(true, usable, serial);
  return pointer;
}

// Whether the pages of the run, and of the chunk before the run, have the properties that the guest has given them.
bool HasOrdinaryPages(const Chunk* chunk, const Slab* run) {
  const char* end = SlabMemory(run) + (size_t{run->units} << kShortShift);
  const char* begin = reinterpret_cast<const char*>(chunk);
  // The page behind the run is a part of the chunk.
  if (end == begin + (size_t{chunk->units} << kShortShift)) return false;
  return IsOneMapping(const_cast<char*>(begin), static_cast<size_t>(end - begin));
}

// Frees the units with ordinary pages. If the system refuses new pages, nobody uses the units again.
void ReturnRun(Slab* run) {
  if (run->size < kUnmapped || HasOrdinaryPages(ChunkOf(run), run)) return ReleaseUnits(run);
  char* memory = SlabMemory(run);
  const size_t bytes = size_t{run->units} << kShortShift;
  if (RenewUnits(run)) return ReleaseUnits(run, false);
  DiscardPages(memory, bytes);
}

void* TakeHuge(size_t usable, size_t alignment, uint64_t serial) {
  void* pointer = TakeHugeSample(usable, alignment, serial);
  if (pointer != nullptr) CountLarge(true, usable, serial);
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
  return fits ? TakeRun(usable, traits.alignment, traits.zero, serial) : TakeHuge(usable, traits.alignment, serial);
}

// A block of the range, as its pointer tells. One of `slab` and `huge` is not nullptr. If both are nullptr, no block
// begins there.
struct Found {
  Slab* slab;
  HugeSample* huge;
  uint64_t serial;
  size_t usable;
};

Found Find(const void* pointer) {
  if (!IsOwn(pointer)) return {};
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

// Decides whether an allocation is a sample. Weight 0: it is not.
Decision DecideOn(size_t size, size_t alignment) {
  StartGuest();
  // The host refuses such a size.
  if (size > kMaximumRequest) return {};
  const Decision decision = Decide(size, alignment);
  return decision.usable <= kMaximumRequest ? decision : Decision{};
}

void* Place(size_t size, const SampleTraits& traits, const Decision& decision) {
  guest_thread.lost = 0;
  if (decision.weight == 0) return nullptr;
  const uint64_t serial = observer::NextSerial();
  void* pointer = TakeBlock(decision.usable, traits, serial);
  if (pointer == nullptr) {
    guest_thread.lost = decision.weight;
    return nullptr;
  }
  observer::Allocated(pointer, {decision.usable, size, serial}, decision.weight);
  return pointer;
}

void ReportFreed(const void* pointer, const Found& found) {
  if (found.serial == kNoSample) return;
  // Gives the thread a heap, whose slot can hold the free back.
  TickSlowPath();
  observer::Freed(pointer, {found.usable, found.usable, found.serial});
}

// Moves the pages of a huge sample, as the host would. nullptr: impossible, and nothing has changed. A block that is no
// longer a sample stays the guest's.
void* MoveHuge(void* pointer, const Found& found, size_t size, const Decision& decision) {
  if (found.huge == nullptr || size <= kRunMaximum) return nullptr;
  const size_t usable = decision.weight != 0 ? decision.usable : HostUsableSize(size, 1);
  if (usable < size || usable > kMaximumRequest) return nullptr;
  HugeMove move(found.huge, usable);
  if (!move) return nullptr;
  const uint64_t serial = decision.weight != 0 ? observer::NextSerial() : kNoSample;
  ReportFreed(pointer, found);
  CountLarge(false, found.usable, found.serial);
  void* moved = move.Finish(serial);
  if (moved == nullptr) {
    // The system lacks memory for the tables of pages. The block stays, and is no longer a sample.
    found.huge->serial = kNoSample;
    CountLarge(true, found.usable, kNoSample);
    return nullptr;
  }
  CountLarge(true, usable, serial);
  if (serial != kNoSample) observer::Allocated(moved, {usable, size, serial}, decision.weight);
  return moved;
}

// Refuses the free of a pointer at which no live block of the guest begins.
void RefuseInvalidFree(const void* pointer) {
  const unsigned kind = ChunkKind(pointer);
  const bool is_free = kind > kFreedHuge && IsUnit(SlabOf(pointer, kind)) && IsFreeUnit(SlabOf(pointer, kind));
  RefuseFree(pointer, is_free ? InvalidFree::kSecond : InvalidFree::kInside);
}

}  // namespace

void* TakeSample(size_t size, SampleTraits traits) { return Place(size, traits, DecideOn(size, traits.alignment)); }

void* ServedByHost(void* block) {
  const uint64_t lost = guest_thread.lost;
  if (HEAPTAP_LIKELY(lost == 0)) return block;
  guest_thread.lost = 0;
  if (block != nullptr) observer::Lost(lost);
  return block;
}

bool ReadsAsZero(const void* pointer) {
  const Found found = Find(pointer);
  if (found.huge != nullptr) return true;
  return found.slab != nullptr && found.slab->owner.load(std::memory_order_relaxed) == kRunOwner && found.slab->fresh;
}

void* ResizeSample(void* pointer, size_t size) {
  HEAPTAP_ASSERT(IsInRange(pointer) && size != 0);
  if (!IsOwn(pointer)) return host.realloc(pointer, size);
  const Found found = Find(pointer);
  if (found.usable == 0) {
    // No block begins there. The call is reported like a free of the pointer.
    FreeSample(pointer);
    errno = ENOMEM;
    return nullptr;
  }
  const Decision decision = Charge(size) ? DecideOn(size, 1) : Decision{};
  if (void* moved = MoveHuge(pointer, found, size, decision)) return moved;
  void* target = Place(size, {}, decision);
  const bool is_zero = target != nullptr && ReadsAsZero(target);
  if (target == nullptr) target = ServedByHost(host.malloc(size));
  if (target == nullptr) return nullptr;
  CopyTo(target, is_zero, pointer, found.usable < size ? found.usable : size);
  FreeSample(pointer);
  return target;
}

void FreeSample(void* pointer) {
  HEAPTAP_ASSERT(IsInRange(pointer));
  if (!IsOwn(pointer)) return host.free(pointer);
  const Found found = Find(pointer);
  if (found.slab == nullptr && found.huge == nullptr) return RefuseInvalidFree(pointer);
  Block* block = static_cast<Block*>(pointer);
  const bool is_large = found.slab == nullptr || found.slab->owner.load(std::memory_order_relaxed) == kRunOwner;
  if (!is_large && !observer::EndSample(found.slab, block)) return;
  ReportFreed(pointer, found);
  if (is_large) {
    CountLarge(false, found.usable, found.serial);
    return found.huge != nullptr ? ReturnHugeSample(found.huge) : ReturnRun(found.slab);
  }
  if (found.serial == kNoSample) AddToFigure(&heaptap_statistics::sampled_objects, 1);
  observer::ReturnBlock(found.slab, block);
}

size_t SampleUsableSize(const void* pointer) {
  HEAPTAP_ASSERT(IsInRange(pointer));
  return IsOwn(pointer) ? Find(pointer).usable : host.malloc_usable_size(const_cast<void*>(pointer));
}

}  // namespace heaptap
