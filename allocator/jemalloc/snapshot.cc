// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/snapshot.h"

#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/control.h"
#include "allocator/core/heap.h"
#include "allocator/core/large.h"
#include "allocator/core/peek.h"
#include "allocator/core/size_class.h"
#include "allocator/core/slab.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap {
namespace {

constinit Mutex snapshot_mutex{LockRank::kSnapshot};  // for the next variables; taken before all other locks
Snapshot sums;
Snapshot of_main;
Snapshot* of_explicit[kMostArenas];  // entry 0 is not used; nullptr: the arena was never made
Snapshot of_destroyed;
bool has_destroyed;
bool valid;  // the last snapshot is complete, and of this process
uint64_t epochs;
uint64_t start;  // Nanoseconds()

constexpr size_t DivideRoundingUp(size_t dividend, size_t divisor) { return (dividend + divisor - 1) / divisor; }

size_t RoundUpToPage(size_t bytes) { return RoundUp(bytes, kPageSize); }

// REQUIRES: as SnapshotScope.
Snapshot& FiguresOf(size_t arena) {
  if (arena == kAllArenas) return sums;
  if (arena == kDestroyedArenas) return of_destroyed;
  return arena == 0 || of_explicit[arena] == nullptr ? of_main : *of_explicit[arena];
}

// False for a moment, while the arena is being made.
bool HasFigures(const Arena& arena) { return arena.index == 0 || of_explicit[arena.index] != nullptr; }

// Counts the resident memory of a block for its arena instead of arena 0.
void MoveResident(Snapshot* snapshot, const void* begin, size_t bytes) {
  if (snapshot == &of_main) return;
  const size_t resident = ResidentBytes(begin, bytes);
  snapshot->resident += resident;
  of_main.resident -= of_main.resident < resident ? of_main.resident : resident;
}

void AddSlab(const Slab* slab) {
  Snapshot& snapshot = FiguresOf(Peek(slab->arena));
  unsigned size_class = Peek(slab->size_class);
  const uint32_t not_collected = RemoteCount(slab->remote_free.load(std::memory_order_relaxed));
  uint32_t used = Peek(slab->used) - Peek(slab->returned);
  // The owner may collect these frees meanwhile.
  used -= used < not_collected ? used : not_collected;
  size_t returned = 0;
  for (const uint64_t& pages : slab->returned_pages)
    returned += static_cast<size_t>(__builtin_popcountll(Peek(pages))) * kPageSize;
  size_t carved = RoundUpToPage(size_t{Peek(slab->carved)} * kClassSize[size_class]);
  size_t touched = RoundUpToPage(Peek(slab->touched));
  ClassStatistics& bin = snapshot.bins[size_class];
  bin.live += used;
  // The owner may change both meanwhile.
  const size_t active = carved > returned ? carved - returned : 0;
  bin.active += active;
  snapshot.active += active;
  // The memory that only earlier owners of the unit have used.
  if (touched > carved) snapshot.mapped += touched - carved;
  MoveResident(&snapshot, SlabMemory(slab), SlabBytes(slab));
}

// Adds the slab or run that begins at a used unit. Returns its number of units.
size_t AddUsed(const Slab* slab, uintptr_t owner) {
  if (owner != kRunOwner) {
    AddSlab(slab);
    return 1;
  }
  Snapshot& snapshot = FiguresOf(Peek(slab->arena));
  const size_t bytes = RoundUpToPage(Peek(slab->size));
  snapshot.active += bytes;
  MoveResident(&snapshot, SlabMemory(slab), bytes);
  uint32_t units = Peek(slab->units);
  return units != 0 ? units : 1;
}

// Adjacent free units that are all dirty or all clean.
struct FreeExtent {
  bool dirty = false;
  size_t bytes = 0;  // of a dirty extent: the bytes that earlier owners have used
};

void EndExtent(FreeExtent* extent) {
  if (extent->bytes != 0) {
    FreeExtentStatistics& statistics = of_main.free_extents[PageClassNumber(extent->bytes)];
    (extent->dirty ? statistics.dirty : statistics.retained)++;
    (extent->dirty ? statistics.dirty_bytes : statistics.retained_bytes) += extent->bytes;
    if (extent->dirty) of_main.dirty += extent->bytes;
  }
  extent->bytes = 0;
}

void AddFree(FreeExtent* extent, bool dirty, size_t bytes) {
  if (dirty != extent->dirty) EndExtent(extent);
  extent->dirty = dirty;
  extent->bytes += bytes;
}

// Adds all chunks of a unit size.
void AddChunks(unsigned shift) {
  // Acquire: the next chunk's header is written.
  for (const Chunk* chunk = FirstChunk(shift); chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire)) {
    uint32_t reach = Peek(chunk->reach);
    of_main.metadata += RoundUpToPage(reach * sizeof(Slab));
    of_main.resident += ResidentBytes(chunk, size_t{reach} << shift);
    const Slab* units = reinterpret_cast<const Slab*>(chunk);
    FreeExtent extent;
    for (size_t unit = 1; unit < reach;) {
      uintptr_t owner = units[unit].owner.load(std::memory_order_relaxed);
      if (owner != kNobody) {
        EndExtent(&extent);
        unit += AddUsed(units + unit, owner);
        continue;
      }
      size_t touched = RoundUpToPage(Peek(units[unit].touched));
      AddFree(&extent, touched != 0, touched != 0 ? touched : size_t{1} << shift);
      unit++;
    }
    if (reach < chunk->units) AddFree(&extent, false, size_t{chunk->units - (reach != 0 ? reach : 1)} << shift);
    EndExtent(&extent);
  }
}

// What AddHugeBlocks needs of a descriptor.
struct HugeCopy {
  size_t mapped;
  ArenaIndex arena;
};

void CopyHuge(void* opaque, void* pointer) {
  *static_cast<HugeCopy*>(opaque) = {Peek(HugeOf(pointer)->mapped), Peek(HugeOf(pointer)->arena)};
}

void AddHugeBlocks() {
  uintptr_t address = 0;
  HugeCopy huge{};
  while ((address = VisitHuge(address, CopyHuge, &huge)) != 0) {
    Snapshot& snapshot = FiguresOf(huge.arena);
    snapshot.metadata += kPageSize;
    snapshot.active += huge.mapped;
    snapshot.resident += ResidentBytes(reinterpret_cast<void*>(address - kPageSize), huge.mapped + kPageSize);
    address += kChunkSize;
  }
  KeptHuge kept[kMostKeptHuge];
  const unsigned count = ListKeptHuge(kept);
  for (unsigned i = 0; i < count; i++) {
    of_main.metadata += kPageSize;
    of_main.dirty += kept[i].mapped;
    of_main.resident += ResidentBytes(kept[i].huge, kept[i].mapped + kPageSize);
  }
}

void AddHeap(void*, const Heap* heap) {
  Snapshot& snapshot = FiguresOf(Peek(heap->arena));
  // The empty heap is a static variable, and the shared ones are parts of arenas.
  if (!IsShared(*heap)) {
    snapshot.metadata += RoundUpToPage(sizeof(Heap));
    snapshot.resident += RoundUpToPage(sizeof(Heap));
    if (Peek(heap->state) == HeapState::kOwned) snapshot.threads++;
  }
  for (unsigned c = 0; c < kSmallClasses; c++) {
    const ClassCounts& counts = heap->classes[c].counts;
    ClassStatistics& bin = snapshot.bins[c];
    uint64_t handed_out = counts.handed_out.Read();
    uint64_t unused = counts.taken_back.Read() + Peek(heap->classes[c].batch);
    bin.allocations += handed_out;
    snapshot.ready += Peek(heap->classes[c].batch) * size_t{kClassSize[c]};
    if (handed_out > unused) bin.requests += handed_out - unused;
    bin.fills += counts.refills.Read();
    bin.flushes += counts.flushes.Read();
    bin.slabs_made += counts.slabs_made.Read();
  }
}

// Reads the frees first: a block that is freed between the two reads was allocated before them.
struct LargeFigures {
  explicit LargeFigures(const LargeCounts& counts)
      : frees(counts.frees.load(std::memory_order_acquire)),
        allocations(counts.allocations.load(std::memory_order_relaxed)) {}
  uint64_t frees;
  uint64_t allocations;
};

// Fills in the slabs, as ClassStatistics describes them. `outside`: the numbers of blocks that are in no slab of
// heaptap's. REQUIRES: the bin's live blocks, active bytes and heaptap's own slabs are counted.
void ShowSlabs(unsigned c, const LargeFigures& outside, ClassStatistics* bin) {
  const size_t blocks = BinSlabBlocks(c);
  // A block outside of all slabs has at least kLargeMinimum bytes. A shown slab of such a size holds one block.
  const size_t outside_now = outside.allocations - outside.frees;
  bin->slabs_made = bin->slabs_made * DivideRoundingUp(kSlabCapacity[c], blocks) + outside.allocations;
  bin->slabs = DivideRoundingUp(bin->active, kBinSlabSize[c]) + outside_now;
  // An owner may have made blocks ready after its slab was visited.
  const size_t least = DivideRoundingUp(bin->live, blocks);
  if (bin->slabs < least) bin->slabs = least;
  bin->slabs_nonfull = bin->slabs - bin->live / blocks;
  if (bin->slabs_nonfull != 0) bin->slabs_nonfull--;
}

void AddBins(Arena& arena, Snapshot* snapshot) {
  for (unsigned c = 0; c < kSmallClasses; c++) {
    ClassStatistics& bin = snapshot->bins[c];
    const LargeFigures large(arena.large[c]);
    bin.live += large.allocations - large.frees;
    const SampledCounts sampled = ReadSampledCounts(arena, c);
    uint64_t by_slow_paths = sampled.allocations + large.allocations;
    bin.allocations += by_slow_paths;
    bin.requests += by_slow_paths;
    bin.slabs_made += sampled.slabs_made;
    if (bin.allocations < bin.live) bin.allocations = bin.live;
    bin.frees = bin.allocations - bin.live;
    ShowSlabs(c, large, &bin);
    snapshot->allocated_small += bin.live * kClassSize[c];
  }
}

void AddExtents(const Arena& arena, Snapshot* snapshot) {
  size_t size = kSmallMaximum;
  for (unsigned i = 0; i < kExtentClasses; i++) {
    size = RoundUpToClass(size + 1);
    const LargeFigures counts(arena.large[kSmallClasses + i]);
    ClassStatistics& extent = snapshot->extents[i];
    extent.allocations = counts.allocations;
    extent.requests = counts.allocations;
    extent.frees = counts.frees;
    extent.live = counts.allocations - counts.frees;
    snapshot->allocated_large += extent.live * size;
  }
}

// Adds what is counted for the arena as a whole, after its heaps, slabs and blocks.
void Complete(Arena& arena) {
  Snapshot& snapshot = FiguresOf(arena.index);
  AddBins(arena, &snapshot);
  AddExtents(arena, &snapshot);
  if (arena.index != 0) {
    snapshot.metadata += RoundUpToPage(sizeof(Arena));
    snapshot.resident += RoundUpToPage(sizeof(Arena));
  }
  snapshot.allocated = snapshot.allocated_small + snapshot.allocated_large;
  snapshot.mapped += snapshot.active + snapshot.dirty + snapshot.metadata;
}

// Adds all figures, each of which is a word.
void Add(Snapshot* sum, const Snapshot& part) {
  uint64_t* words = reinterpret_cast<uint64_t*>(sum);
  for (size_t i = 0; i < sizeof(Snapshot) / sizeof(uint64_t); i++) {
    words[i] += reinterpret_cast<const uint64_t*>(&part)[i];
  }
}

// Makes the requests of the calling thread and the requests in shared heaps exact. REQUIRES: no lock is held, since the
// end of the HeapScope may print statistics, which takes a snapshot.
void SettleAllocations() {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  {
    HeapScope heap;
    heap->SettleAllocations();
  }
  ForEachArena([](Arena& arena) {
    HeapScope heap(arena);
    heap->PutBackReady();
  });
}

// REQUIRES: snapshot_mutex is held.
void FillSnapshot() {
  HEAPTAP_ASSERT(snapshot_mutex.IsMine());
  valid = false;
  epochs++;
  ForEachArena([](Arena& arena) { memset(&FiguresOf(arena.index), 0, sizeof(Snapshot)); });
  AddChunks(kShortShift);
  AddChunks(kLongShift);
  AddHugeBlocks();
  VisitHeaps(AddHeap, nullptr);
  TableRange table = UsedTable();
  size_t table_bytes = ResidentBytes(table.begin, table.bytes);
  of_main.metadata += table_bytes;
  of_main.resident += table_bytes;
  PurgeCounts purge = ReadPurgeCounts();
  of_main.purges = purge.rounds;
  of_main.purge_calls = purge.calls;
  of_main.purged_bytes = purge.bytes;
  memset(&sums, 0, sizeof(sums));
  ForEachArena([](Arena& arena) {
    if (!HasFigures(arena)) return;
    Complete(arena);
    Add(&sums, FiguresOf(arena.index));
  });
  size_t all = ReadFigure(&heaptap_statistics::mapped) + table_bytes;
  sums.retained = all > sums.mapped ? all - sums.mapped : 0;
  of_main.retained = sums.retained;
  sums.uptime = Nanoseconds() - start;
  ForEachArena([](Arena& arena) { FiguresOf(arena.index).uptime = sums.uptime; });
  valid = true;
}

}  // namespace

void TakeSnapshot() {
  SettleAllocations();
  MutexLock lock(snapshot_mutex);
  FillSnapshot();
}

SnapshotScope::SnapshotScope(size_t arena, const Snapshot* copy) : figures_(copy), is_locked_(copy == nullptr) {
  HEAPTAP_ASSERT(arena < ArenaCount() || arena == kAllArenas || arena == kDestroyedArenas);
  if (!is_locked_) return;
  snapshot_mutex.Lock();
  if (!valid) FillSnapshot();
  figures_ = &FiguresOf(arena);
}

SnapshotScope::~SnapshotScope() {
  if (is_locked_) snapshot_mutex.Unlock();
}

void LastSnapshot(Snapshot* snapshot, size_t arena) {
  SnapshotScope scope(arena);
  memcpy(snapshot, &*scope, sizeof(*snapshot));
}

uint64_t SnapshotEpoch() {
  MutexLock lock(snapshot_mutex);
  return epochs;
}

bool ClearSnapshotOf(size_t arena) {
  MutexLock lock(snapshot_mutex);
  Snapshot*& figures = of_explicit[arena];
  if (figures == nullptr) figures = static_cast<Snapshot*>(MapAligned(RoundUpToPage(sizeof(Snapshot)), kPageSize));
  if (figures != nullptr) memset(figures, 0, sizeof(*figures));
  return figures != nullptr;
}

void AddToDestroyed(size_t arena) {
  SettleAllocations();
  MutexLock lock(snapshot_mutex);
  FillSnapshot();
  Add(&of_destroyed, FiguresOf(arena));
  of_destroyed.uptime = 0;
  has_destroyed = true;
}

bool HasDestroyedArenas() {
  MutexLock lock(snapshot_mutex);
  return has_destroyed;
}

void StartSnapshots() { start = Nanoseconds(); }

void ResetSnapshotsAfterFork() {
  snapshot_mutex.Reset();
  valid = false;
}

}  // namespace heaptap
