// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/snapshot.h"

#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/core/large.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap {
namespace {

constinit Mutex snapshot_mutex{LockRank::kSnapshot};  // for the next three variables; taken before all other locks
Snapshot last;
bool valid;  // `last` is complete, and of this process
uint64_t epochs;
uint64_t start;  // Nanoseconds()

size_t RoundUpToPage(size_t bytes) { return (bytes + kPageSize - 1) & ~(kPageSize - 1); }

// Reads a word that its owner may change at the same time, also on the fast paths, where it is not a std::atomic: gets
// one of its values. ThreadSanitizer must not check this access.
template <typename Word>
[[gnu::noinline, gnu::no_sanitize_thread]] Word Peek(const Word& word) {
  static_assert(sizeof(Word) <= sizeof(uint64_t));
  Word value;
  __atomic_load(&word, &value, __ATOMIC_RELAXED);
  return value;
}

// The snapshot that is being taken, and intermediate results.
struct SnapshotBuilder {
  Snapshot* snapshot;
  size_t slack;                           // bytes of slabs that only earlier owners of the units have used
  size_t resident;                        // bytes of chunks, huge blocks and heaps
  uint64_t not_collected[kSmallClasses];  // remote frees that the heaps have not yet collected
  Huge huge;                              // a copy of the current huge block's descriptor
};

void AddSlab(SnapshotBuilder* builder, const Slab* slab) {
  Snapshot& snapshot = *builder->snapshot;
  unsigned size_class = Peek(slab->size_class);
  uint32_t used = Peek(slab->used) - Peek(slab->returned);
  size_t returned = 0;
  for (const uint64_t& pages : slab->returned_pages)
    returned += static_cast<size_t>(__builtin_popcountll(Peek(pages))) * kPageSize;
  size_t carved = RoundUpToPage(size_t{Peek(slab->carved)} * kClassSize[size_class]);
  size_t touched = RoundUpToPage(Peek(slab->touched));
  ClassStatistics& bin = snapshot.bins[size_class];
  bin.live += used;
  bin.slabs++;
  if (used < Peek(slab->capacity)) bin.slabs_nonfull++;
  // The owner may change both meanwhile.
  snapshot.active += carved > returned ? carved - returned : 0;
  if (touched > carved) builder->slack += touched - carved;
}

// Adds the slab or run that begins at a used unit. Returns its number of units.
size_t AddUsed(SnapshotBuilder* builder, const Slab* slab, uintptr_t owner) {
  if (owner != kRunOwner) {
    AddSlab(builder, slab);
    return 1;
  }
  builder->snapshot->active += RoundUpToPage(Peek(slab->size));
  uint32_t units = Peek(slab->units);
  return units != 0 ? units : 1;
}

// Adjacent free units that are all dirty or all clean.
struct FreeExtent {
  bool dirty = false;
  size_t bytes = 0;  // of a dirty extent: those that earlier owners have used
};

void EndExtent(SnapshotBuilder* builder, FreeExtent* extent) {
  if (extent->bytes != 0) {
    FreeExtentStatistics& statistics = builder->snapshot->free_extents[PageClassNumber(extent->bytes)];
    (extent->dirty ? statistics.dirty : statistics.retained)++;
    (extent->dirty ? statistics.dirty_bytes : statistics.retained_bytes) += extent->bytes;
    if (extent->dirty) builder->snapshot->dirty += extent->bytes;
  }
  extent->bytes = 0;
}

void AddFree(SnapshotBuilder* builder, FreeExtent* extent, bool dirty, size_t bytes) {
  if (dirty != extent->dirty) EndExtent(builder, extent);
  extent->dirty = dirty;
  extent->bytes += bytes;
}

// Adds all chunks of a unit size.
void AddChunks(SnapshotBuilder* builder, unsigned shift) {
  // Acquire: the next chunk's header is written.
  for (const Chunk* chunk = FirstChunk(shift); chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire)) {
    uint32_t reach = Peek(chunk->reach);
    builder->snapshot->metadata += RoundUpToPage(reach * sizeof(Slab));
    const Slab* units = reinterpret_cast<const Slab*>(chunk);
    FreeExtent extent;
    for (size_t unit = 1; unit < reach;) {
      uintptr_t owner = units[unit].owner.load(std::memory_order_relaxed);
      if (owner != kNobody) {
        EndExtent(builder, &extent);
        unit += AddUsed(builder, units + unit, owner);
        continue;
      }
      size_t touched = RoundUpToPage(Peek(units[unit].touched));
      AddFree(builder, &extent, touched != 0, touched != 0 ? touched : size_t{1} << shift);
      unit++;
    }
    if (reach < chunk->units)
      AddFree(builder, &extent, false, size_t{chunk->units - (reach != 0 ? reach : 1)} << shift);
    EndExtent(builder, &extent);
    builder->resident += ResidentBytes(chunk, size_t{reach} << shift);
  }
}

void CopyHuge(void* opaque, void* pointer) {
  SnapshotBuilder* builder = static_cast<SnapshotBuilder*>(opaque);
  builder->huge.mapped = Peek(HugeOf(pointer)->mapped);
}

void AddHugeBlocks(SnapshotBuilder* builder) {
  uintptr_t address = 0;
  while ((address = VisitHuge(address, CopyHuge, builder)) != 0) {
    builder->snapshot->metadata += kPageSize;
    builder->snapshot->active += builder->huge.mapped;
    builder->resident += ResidentBytes(reinterpret_cast<void*>(address - kPageSize), builder->huge.mapped + kPageSize);
    address += kChunkSize;
  }
  KeptHuge kept[kMostKeptHuge];
  const unsigned count = ListKeptHuge(kept);
  for (unsigned i = 0; i < count; i++) {
    builder->snapshot->metadata += kPageSize;
    builder->snapshot->dirty += kept[i].mapped;
    builder->resident += ResidentBytes(kept[i].huge, kept[i].mapped + kPageSize);
  }
}

void AddHeap(void* opaque, const Heap* heap) {
  SnapshotBuilder* builder = static_cast<SnapshotBuilder*>(opaque);
  Snapshot& snapshot = *builder->snapshot;
  // Heaps without a serial number are static variables, not mapped memory.
  if (heap->serial != 0) {
    snapshot.metadata += RoundUpToPage(sizeof(Heap));
    builder->resident += RoundUpToPage(sizeof(Heap));
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
    builder->not_collected[c] += counts.remote_frees.Read() - counts.collected.Read();
  }
}

void AddBins(SnapshotBuilder* builder) {
  Snapshot& snapshot = *builder->snapshot;
  for (unsigned c = 0; c < kSmallClasses; c++) {
    ClassStatistics& bin = snapshot.bins[c];
    // May be negative, if a block is freed and collected between the two reads.
    int64_t not_collected = static_cast<int64_t>(builder->not_collected[c]);
    if (not_collected > 0) bin.live -= bin.live < builder->not_collected[c] ? bin.live : builder->not_collected[c];
    LargeCounts large = ReadLargeCounts(c);
    bin.live += large.allocations - large.frees;
    uint64_t by_slow_paths = SampledAllocations(c) + large.allocations;
    bin.allocations += by_slow_paths;
    bin.requests += by_slow_paths;
    bin.slabs_made = SlabsMade(c);
    if (bin.allocations < bin.live) bin.allocations = bin.live;
    bin.frees = bin.allocations - bin.live;
    snapshot.allocated_small += bin.live * kClassSize[c];
  }
}

void AddExtents(Snapshot* snapshot) {
  size_t size = kSmallMaximum;
  for (unsigned i = 0; i < kExtentClasses; i++) {
    size = RoundUpToClass(size + 1);
    LargeCounts counts = ReadLargeCounts(kSmallClasses + i);
    ClassStatistics& extent = snapshot->extents[i];
    extent.allocations = counts.allocations;
    extent.requests = counts.allocations;
    extent.frees = counts.frees;
    extent.live = counts.allocations - counts.frees;
    snapshot->allocated_large += extent.live * size;
  }
}

// Makes the calling thread's own requests exact. REQUIRES: no lock is held, since the end of the HeapScope may print
// statistics, which takes a snapshot.
void SettleOwnAllocations() {
  HeapScope heap;
  heap->SettleAllocations();
}

// Takes a snapshot into `last`. REQUIRES: snapshot_mutex is held.
void FillSnapshot() {
  valid = false;
  memset(&last, 0, sizeof(last));
  last.epoch = ++epochs;
  SnapshotBuilder builder{};
  builder.snapshot = &last;
  VisitHeaps(AddHeap, &builder);
  AddChunks(&builder, kShortShift);
  AddChunks(&builder, kLongShift);
  AddHugeBlocks(&builder);
  AddBins(&builder);
  AddExtents(&last);
  TableRange table = UsedTable();
  size_t table_bytes = ResidentBytes(table.begin, table.bytes);
  last.metadata += table_bytes;
  last.allocated = last.allocated_small + last.allocated_large;
  last.resident = builder.resident + table_bytes;
  last.mapped = last.active + last.dirty + last.metadata + builder.slack;
  size_t all = ReadFigure(&heaptap_statistics::mapped) + table_bytes;
  last.retained = all > last.mapped ? all - last.mapped : 0;
  PurgeCounts purge = ReadPurgeCounts();
  last.purges = purge.rounds;
  last.purge_calls = purge.calls;
  last.purged_bytes = purge.bytes;
  last.uptime = Nanoseconds() - start;
  valid = true;
}

}  // namespace

void TakeSnapshot() {
  SettleOwnAllocations();
  MutexLock lock(snapshot_mutex);
  FillSnapshot();
}

SnapshotScope::SnapshotScope(const Snapshot* copy) : copy_(copy) {
  if (copy_ != nullptr) return;
  snapshot_mutex.Lock();
  if (!valid) FillSnapshot();
}

SnapshotScope::~SnapshotScope() {
  if (copy_ == nullptr) snapshot_mutex.Unlock();
}

const Snapshot& SnapshotScope::operator*() const { return copy_ != nullptr ? *copy_ : last; }

void LastSnapshot(Snapshot* snapshot) {
  SnapshotScope scope;
  memcpy(snapshot, &*scope, sizeof(*snapshot));
}

uint64_t SnapshotEpoch() {
  MutexLock lock(snapshot_mutex);
  return epochs;
}

void StartSnapshots() { start = Nanoseconds(); }

void ResetSnapshotsAfterFork() {
  snapshot_mutex.Reset();
  valid = false;
}

}  // namespace heaptap
