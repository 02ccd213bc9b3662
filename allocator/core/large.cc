// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/large.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/huge_pages.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

constexpr size_t kUnit = size_t{1} << kShortShift;

size_t UnitsFor(size_t size) { return (size + kUnit - 1) / kUnit; }

size_t PagesFor(size_t size) { return RoundUp(size, kPageSize); }

Huge* DescriptorOf(void* pointer) { return reinterpret_cast<Huge*>(static_cast<char*>(pointer) - kPageSize); }

char* HugeMemory(Huge* huge) { return reinterpret_cast<char*>(huge) + kPageSize; }

// Runs from this size on go back to the system at once while much is dirty. A smaller run is not worth a system call of
// its own: PurgeExcess returns several together.
constexpr size_t kEagerMinimum = 1024 * 1024;

// Milliseconds. Memory that was freed this long ago is less likely to be used for the next block than memory that is
// freed now.
constexpr uint64_t kOld = 20;

bool IsDirtyAbove(size_t bytes) { return ReadFigure(&heaptap_statistics::dirty) > bytes; }

// Whether dirty memory exceeds the bound even after older memory has gone back to the system.
bool IsRoomUsedUp() {
  const size_t bound = DirtyBound();
  if (!IsDirtyAbove(bound)) return false;
  Purge(kOld);
  // The bound falls while a process frees all that it has. Where blocks come and go, the bound stays the same, and
  // young memory is kept.
  if (IsDirtyAbove(bound + bound / 4)) Purge(0);
  return IsDirtyAbove(bound);
}

void CountMapped(int64_t bytes) { AddToFigure(&heaptap_statistics::mapped, bytes); }

void CountActive(int64_t bytes) {
  AddToFigure(&heaptap_statistics::active, bytes);
  observer::ActiveGrew();
}

void Increment(std::atomic<uint64_t>* count) { count->fetch_add(1, std::memory_order_relaxed); }

// Counts an allocation. Returns its weight if the observer wants it, else 0.
uint64_t CountAndWeigh(ArenaIndex arena, size_t size) {
  uint64_t weight = 0;
  {
    HeapScope heap;
    observer::BeforeAllocation(&*heap);
    weight = observer::WeighLarge(&*heap, size);
    thread_counters.allocated += size;
    heap->FollowPeak();
  }
  Increment(&ArenaOf(arena).large[ClassNumber(size)].allocations);
  AddToFigure(&heaptap_statistics::large, static_cast<int64_t>(size));
  if (weight != 0) AddToFigure(&heaptap_statistics::sampled_objects, 1);
  return weight;
}

// Counts a block that is new or has a new size, and reports it if it is a sample. `Descriptor`: Slab of a run, or Huge.
template <typename Descriptor>
void BeginBlock(void* pointer, Descriptor* block, size_t requested) {
  block->requested = requested;
  uint64_t weight = CountAndWeigh(block->arena, block->size);
  block->sample = weight != 0 ? observer::NextSerial() : 0;
  if (weight != 0) observer::Allocated(pointer, {block->size, requested, block->sample}, weight);
}

// The reverse of BeginBlock, before the block is freed or gets a new size: the observer sees the block while its memory
// is still valid.
template <typename Descriptor>
void EndBlock(void* pointer, const Descriptor* block) {
  AddToFigure(&heaptap_statistics::large, -static_cast<int64_t>(block->size));
  thread_counters.deallocated += block->size;
  Increment(&ArenaOf(block->arena).large[ClassNumber(block->size)].frees);
  if (block->sample == 0) return;
  AddToFigure(&heaptap_statistics::sampled_objects, -1);
  observer::Freed(pointer, {block->size, block->requested, block->sample});
}

void* AllocateRun(Arena& arena, size_t size, size_t alignment, size_t requested) {
  Slab* run = AllocateUnits(kShortShift, UnitsFor(size), alignment < kUnit ? 1 : alignment / kUnit);
  if (run == nullptr) return nullptr;
  run->size = size;
  run->arena = arena.index;
  // Release: as in NewSlab.
  run->owner.store(kRunOwner, std::memory_order_release);
  void* pointer = SlabMemory(run);
  BeginBlock(pointer, run, requested);
  return pointer;
}

// Changes the size of a mapping in place. False: impossible, and nothing has changed.
bool ResizeHugeMapping(Huge* huge, size_t mapped) {
  if (mapped == huge->mapped) return true;
  if (!ResizeMapping(huge, huge->mapped + kPageSize, mapped + kPageSize)) return false;
  CountMapped(static_cast<int64_t>(mapped) - static_cast<int64_t>(huge->mapped));
  huge->mapped = mapped;
  // If the mapping grows again, the bytes that it has lost read as zero.
  if (huge->written > mapped) huge->written = mapped;
  return true;
}

// A kept block, resized. nullptr: there is none of about this size.
Huge* ReuseHuge(size_t mapped) {
  Huge* huge = TakeHuge(mapped);
  if (huge == nullptr || ResizeHugeMapping(huge, mapped)) return huge;
  // Another mapping is in the way.
  UnmapHuge(huge);
  return nullptr;
}

Huge* MapHuge(size_t mapped, size_t alignment) {
  void* pointer = MapAligned(mapped, alignment < kChunkSize ? kChunkSize : alignment, kPageSize);
  if (pointer == nullptr) return nullptr;
  CountMapped(static_cast<int64_t>(mapped));
  AddToFigure(&heaptap_statistics::metadata, kPageSize);
  Huge* huge = DescriptorOf(pointer);
  // The descriptor's page is included, so that the whole block is one mapping: the system cannot move several at once.
  AdviseHugePages(huge, mapped + kPageSize, true);
  huge->mapped = mapped;
  return huge;
}

void* AllocateHuge(Arena& arena, size_t size, size_t alignment, size_t requested) {
  size_t mapped = PagesFor(size);
  Huge* huge = alignment <= kChunkSize ? ReuseHuge(mapped) : nullptr;
  if (huge == nullptr) huge = MapHuge(mapped, alignment);
  if (huge == nullptr) return nullptr;
  CountActive(static_cast<int64_t>(mapped));
  huge->size = size;
  huge->arena = arena.index;
  void* pointer = HugeMemory(huge);
  SetHuge(pointer, true);
  BeginBlock(pointer, huge, requested);
  return pointer;
}

}  // namespace

Huge* HugeOf(void* pointer) {
  HEAPTAP_ASSERT(ChunkKind(pointer) == kHuge);
  return (reinterpret_cast<uintptr_t>(pointer) & (kChunkSize - 1)) != 0 ? nullptr : DescriptorOf(pointer);
}

bool IsInsideHuge(const void* pointer) {
  struct Search {
    uintptr_t wanted;
    bool found;
  };
  auto visit = [](void* opaque, void* huge) {
    Search* search = static_cast<Search*>(opaque);
    // The page of the descriptor counts too.
    uintptr_t begin = reinterpret_cast<uintptr_t>(HugeOf(huge));
    search->found |= search->wanted >= begin && search->wanted - begin < HugeOf(huge)->mapped + kPageSize;
  };
  Search search{reinterpret_cast<uintptr_t>(pointer), false};
  uintptr_t address = 0;
  while (!search.found && (address = VisitHuge(address, visit, &search)) != 0) address += kChunkSize;
  return search.found;
}

void* AllocateLarge(Arena& arena, size_t size, size_t alignment, size_t requested) {
  bool fits = size <= kRunMaximum && alignment < kRunMaximum;
  return fits ? AllocateRun(arena, size, alignment, requested) : AllocateHuge(arena, size, alignment, requested);
}

void FreeRun(Slab* run, bool returns_memory) {
  char* pointer = SlabMemory(run);
  EndBlock(pointer, run);
  bool goes_back = (returns_memory || (run->size >= kEagerMinimum && IsRoomUsedUp())) &&
                   DiscardPages(pointer, size_t{run->units} << kShortShift);
  ReleaseUnits(run, !goes_back);
  PurgeExcess();
  TickSlowPath();
}

void FreeHuge(Huge* huge, bool returns_memory) {
  char* pointer = HugeMemory(huge);
  EndBlock(pointer, huge);
  CountActive(-static_cast<int64_t>(huge->mapped));
  SetHuge(pointer, false);
  if (huge->written < huge->size) huge->written = huge->size;
  returns_memory ? UnmapHuge(huge) : KeepHuge(huge);
  TickSlowPath();
}

bool ResizeRun(Slab* run, size_t size, size_t requested) {
  HEAPTAP_ASSERT(size == RoundUpToClass(size));
  size_t units = UnitsFor(size);
  if (size > kRunMaximum || (units != run->units && !ResizeUnits(run, units))) return false;
  void* pointer = SlabMemory(run);
  EndBlock(pointer, run);
  run->size = size;
  BeginBlock(pointer, run, requested);
  return true;
}

bool ResizeHuge(Huge* huge, size_t size, size_t requested) {
  HEAPTAP_ASSERT(size == RoundUpToClass(size));
  size_t old_mapped = huge->mapped;
  if (!ResizeHugeMapping(huge, PagesFor(size))) return false;
  char* pointer = HugeMemory(huge);
  EndBlock(pointer, huge);
  CountActive(static_cast<int64_t>(huge->mapped) - static_cast<int64_t>(old_mapped));
  huge->size = size;
  BeginBlock(pointer, huge, requested);
  return true;
}

void* MoveHuge(Arena& arena, Huge* huge, size_t size, size_t requested) {
  char* source = HugeMemory(huge);
  size_t mapped = PagesFor(size);
  if (!IsOneMapping(huge, huge->mapped)) return nullptr;
  char* target = static_cast<char*>(MapAligned(mapped, kChunkSize, kPageSize));
  if (target == nullptr) return nullptr;
  size_t old_mapped = huge->mapped;
  // Another thread may get the old address once the pages have moved, so the free is reported before.
  EndBlock(source, huge);
  SetHuge(source, false);
  if (!MoveMapping(huge, old_mapped + kPageSize, mapped + kPageSize, target - kPageSize)) {
    // The process can have no more mappings, or the system has no memory. The block stays at its address, as a new
    // allocation.
    SetHuge(source, true);
    BeginBlock(source, huge, huge->requested);
    return nullptr;
  }
  SetHuge(target, true);
  int64_t growth = static_cast<int64_t>(mapped) - static_cast<int64_t>(old_mapped);
  CountMapped(growth);
  CountActive(growth);
  Huge* moved = HugeOf(target);
  moved->size = size;
  moved->arena = arena.index;
  moved->mapped = mapped;
  if (moved->written > mapped) moved->written = mapped;
  BeginBlock(target, moved, requested);
  return target;
}

}  // namespace heaptap
