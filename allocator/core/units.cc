// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/units.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <iterator>

#include "allocator/core/check.h"
#include "allocator/core/chunks.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/huge_cache.h"
#include "allocator/core/huge_pages.h"
#include "allocator/core/new_chunk.h"
#include "allocator/core/observer.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {

constinit std::atomic<uint8_t> chunk_table[kChunkTableSize]{};

namespace {

constinit Mutex units_mutex{LockRank::kUnits};
constinit Mutex purge_mutex{LockRank::kPurge};  // taken before units_mutex; held during the purge of a chunk
constinit Chunks short_chunks{};
constinit Chunks long_chunks{};

// Entries of chunk_table outside [table_begin, table_end) have never been written. Under units_mutex.
size_t table_begin = std::size(chunk_table);
size_t table_end;

constinit std::atomic<uint64_t> purge_rounds;
constinit std::atomic<uint64_t> purge_calls;
constinit std::atomic<uint64_t> purged_bytes;

void AddTo(std::atomic<uint64_t>* count, uint64_t amount) { count->fetch_add(amount, std::memory_order_relaxed); }

// REQUIRES: units_mutex is held.
void SetChunkKind(const void* pointer, uint8_t kind) {
  HEAPTAP_ASSERT(units_mutex.IsMine());
  const size_t index = TableIndex(pointer);
  if (index < table_begin) table_begin = index;
  if (index >= table_end) table_end = index + 1;
  // Release: the header or descriptor that readers find by the kind is written.
  chunk_table[index].store(kind, std::memory_order_release);
}

Chunks& ChunksOf(unsigned shift) { return shift == kShortShift ? short_chunks : long_chunks; }

Slab* Descriptor(Chunk* chunk, size_t unit) { return reinterpret_cast<Slab*>(chunk) + unit; }

int64_t UnitBytes(const Chunk* chunk, size_t units) { return static_cast<int64_t>(units << chunk->shift); }

// Records that a unit of the chunk has been dirty since this time.
void NoteDirty(Chunk* chunk, uint64_t since) {
  if (since < chunk->dirty_since.load(std::memory_order_relaxed)) {
    chunk->dirty_since.store(since, std::memory_order_relaxed);
  }
}

// Before the units of a slab or a run become free: records how much of each has been used.
void NoteTouched(Slab* slab) {
  bool run = slab->owner.load(std::memory_order_relaxed) == kRunOwner;
  size_t left = run ? slab->size : slab->carved * slab->size;
  size_t unit_bytes = size_t{1} << ChunkOf(slab)->shift;
  for (Slab* unit = slab; unit != slab + slab->units; unit++) {
    size_t used = left < unit_bytes ? left : unit_bytes;
    if (used > unit->touched) unit->touched = static_cast<uint32_t>(used);
    left -= used;
  }
}

void ExtendReach(Chunk* chunk, size_t reach) {
  AddToFigure(&heaptap_statistics::metadata,
              static_cast<int64_t>(DescriptorBytes(reach) - DescriptorBytes(chunk->reach)));
  chunk->reach = static_cast<uint32_t>(reach);
}

// Takes free units into use. True if all of them are clean.
bool ClaimUnits(Chunk* chunk, size_t first, size_t count) {
  size_t dirty = 0;
  for (Slab* unit = Descriptor(chunk, first); unit != Descriptor(chunk, first + count); unit++) {
    dirty += unit->dirty;
    unit->dirty = false;
  }
  if (dirty != 0) AddToFigure(&heaptap_statistics::dirty, -UnitBytes(chunk, dirty));
  ChunksOf(chunk->shift).MarkUsed(chunk, first, count);
  if (first + count > chunk->reach) ExtendReach(chunk, first + count);
  return dirty == 0;
}

// Makes units free. `now`: their free_since.
void ReturnUnits(Chunk* chunk, size_t first, size_t count, bool dirty, uint64_t now) {
  for (Slab* unit = Descriptor(chunk, first); unit != Descriptor(chunk, first + count); unit++) {
    unit->owner.store(kNobody, std::memory_order_relaxed);
    unit->dirty = dirty;
    if (!dirty) unit->touched = 0;
    unit->free_since = now;
  }
  ChunksOf(chunk->shift).MarkFree(chunk, first, count);
  if (!dirty) return;
  NoteDirty(chunk, now);
  AddToFigure(&heaptap_statistics::dirty, UnitBytes(chunk, count));
}

// Makes a chunk with room for `count` units at this alignment. False: out of memory.
bool MakeChunk(unsigned shift, size_t count, size_t alignment) {
  Chunks& chunks = ChunksOf(shift);
  // Unit 0 is the chunk's own, so the first aligned place is at unit `alignment`.
  const size_t needed = (alignment + count) << shift;
  Chunk* chunk = MapChunk(shift, needed, chunks.first() == nullptr, {table_begin, table_end});
  if (chunk == nullptr) return false;
  chunk->dirty_since.store(kNeverDirty, std::memory_order_relaxed);
  chunks.Add(chunk);
  SetChunkKind(chunk, static_cast<uint8_t>(shift));
  return true;
}

// Consecutive units.
struct UnitRange {
  size_t first;
  size_t count;
};

// Takes the first dirty units at or after `from` that have been free since `free_before` or longer. Notes the times of
// the dirty units that it passes over.
UnitRange ClaimDirty(Chunk* chunk, size_t from, uint64_t free_before) {
  UnitRange range{};
  for (size_t unit = NextFree(chunk, from); unit < chunk->reach; unit = NextFree(chunk, unit + 1)) {
    if (range.count != 0 && unit != range.first + range.count) break;
    Slab* slab = Descriptor(chunk, unit);
    bool due = slab->dirty && slab->free_since <= free_before;
    if (slab->dirty && !due) NoteDirty(chunk, slab->free_since);
    if (due && range.count == 0) range.first = unit;
    if (due) range.count++;
    if (!due && range.count != 0) break;
  }
  if (range.count != 0) ClaimUnits(chunk, range.first, range.count);
  return range;
}

bool Discard(void* memory, size_t bytes) {
  if (!DiscardPages(memory, bytes)) return false;
  AddTo(&purge_calls, 1);
  AddTo(&purged_bytes, bytes);
  return true;
}

// The locks are taken for one chunk at a time, because a fork may be waiting.
bool PurgeChunk(Chunk* chunk, uint64_t free_before, uint64_t now) {
  // Without the locks, so that a chunk in which nothing is due costs one load.
  if (chunk->dirty_since.load(std::memory_order_relaxed) > free_before) return false;
  if (!purge_mutex.TryLock()) return false;  // another thread is purging
  bool purged = false;
  units_mutex.Lock();
  // The search below computes it again.
  chunk->dirty_since.store(kNeverDirty, std::memory_order_relaxed);
  UnitRange range = ClaimDirty(chunk, 1, free_before);
  while (range.count != 0) {
    units_mutex.Unlock();
    // Locked memory (mlockall) cannot be discarded. It stays dirty, and a later purge tries again.
    bool discarded = Discard(SlabMemory(Descriptor(chunk, range.first)), range.count << chunk->shift);
    purged |= discarded;
    units_mutex.Lock();
    ReturnUnits(chunk, range.first, range.count, !discarded, now);
    range = ClaimDirty(chunk, range.first + range.count, free_before);
  }
  units_mutex.Unlock();
  purge_mutex.Unlock();
  return purged;
}

}  // namespace

Slab* AllocateUnits(unsigned shift, size_t count, size_t alignment) {
  MutexLock lock(units_mutex);
  Place place = ChunksOf(shift).Find(count, alignment);
  if (place.chunk == nullptr) {
    if (!MakeChunk(shift, count, alignment)) return nullptr;
    place = ChunksOf(shift).Find(count, alignment);
  }
  Chunk* chunk = place.chunk;
  Slab* slab = Descriptor(chunk, place.first);
  slab->fresh = ClaimUnits(chunk, place.first, count);
  slab->units = static_cast<uint32_t>(count);
  slab->requested = 0;
  slab->sample = 0;
  AddToFigure(&heaptap_statistics::active, UnitBytes(chunk, count));
  observer::ActiveGrew();
  return slab;
}

Slab* NewSlab(unsigned size_class, uintptr_t owner, ArenaIndex arena) {
  const unsigned shift = ShiftOf(size_class);
  Slab* slab = AllocateUnits(shift, 1, 1);
  if (slab == nullptr && shift != kShortShift) slab = AllocateUnits(kShortShift, 1, 1);
  if (slab == nullptr) return nullptr;
  slab->local_free = nullptr;
  slab->used = 0;
  slab->used_settled = 0;
  slab->carved = 0;
  slab->capacity = static_cast<uint32_t>(SlabBytes(slab) / kClassSize[size_class]);
  slab->size_class = static_cast<uint8_t>(size_class);
  slab->size = kClassSize[size_class];
  slab->wake_pending = false;
  slab->distant = false;
  slab->arena = arena;
  slab->returned = 0;
  slab->searched_free = 0;
  slab->seen_free = 0;
  slab->remote_free.store(0, std::memory_order_relaxed);
  // Release: a thread that finds the owner word finds the arena (arena_life.cc).
  slab->owner.store(owner, std::memory_order_release);
  return slab;
}

void ReleaseUnits(Slab* slab, bool dirty) {
  HEAPTAP_ASSERT(slab->owner.load(std::memory_order_relaxed) == kRunOwner || (slab->used == 0 && !slab->wake_pending));
  Chunk* chunk = ChunkOf(slab);
  uint64_t now = CoarseMilliseconds();
  MutexLock lock(units_mutex);
  AddToFigure(&heaptap_statistics::active, -UnitBytes(chunk, slab->units));
  NoteTouched(slab);
  ReturnUnits(chunk, UnitIndex(slab), slab->units, dirty, now);
}

bool RenewUnits(Slab* run) {
  const Chunk* chunk = ChunkOf(run);
  char* memory = SlabMemory(run);
  const size_t bytes = static_cast<size_t>(UnitBytes(chunk, run->units));
  if (!RenewPages(memory, bytes)) return false;
  AdviseHugePages(memory, bytes, chunk->huge_pages);
  return true;
}

bool ReturnPages(Slab* slab, uint32_t first, uint32_t count) {
  if (!Discard(SlabMemory(slab) + first * kPageSize, count * kPageSize)) return false;
  Chunk* chunk = ChunkOf(slab);
  bool forbids_huge_pages;
  {
    // The lock is for CheckUnits.
    MutexLock lock(units_mutex);
    for (uint32_t page = first; page < first + count; page++) {
      slab->returned_pages[page / 64] |= uint64_t{1} << page % 64;
    }
    AddToFigure(&heaptap_statistics::active, -static_cast<int64_t>(count * kPageSize));
    forbids_huge_pages = chunk->huge_pages;
    chunk->huge_pages = false;
  }
  // The kernel would fill the holes again, to make huge pages of what is left.
  if (forbids_huge_pages) AdviseHugePages(chunk, size_t{chunk->units} << chunk->shift, false);
  return true;
}

void TakePage(Slab* slab, uint32_t page) {
  HEAPTAP_ASSERT(IsPageReturned(slab, page));
  MutexLock lock(units_mutex);
  slab->returned_pages[page / 64] &= ~(uint64_t{1} << page % 64);
  AddToFigure(&heaptap_statistics::active, int64_t{kPageSize});
}

void TakeAllPages(Slab* slab) {
  MutexLock lock(units_mutex);
  int64_t pages = 0;
  for (uint64_t& returned : slab->returned_pages) {
    pages += __builtin_popcountll(returned);
    returned = 0;
  }
  AddToFigure(&heaptap_statistics::active, pages * static_cast<int64_t>(kPageSize));
}

bool ResizeUnits(Slab* run, size_t count) {
  Chunk* chunk = ChunkOf(run);
  size_t first = UnitIndex(run);
  uint64_t now = CoarseMilliseconds();
  MutexLock lock(units_mutex);
  size_t old_count = run->units;
  if (count < old_count) {
    NoteTouched(run);
    ReturnUnits(chunk, first + count, old_count - count, true, now);
  } else {
    if (!AreFree(chunk, first + old_count, count - old_count)) return false;
    ClaimUnits(chunk, first + old_count, count - old_count);
  }
  run->units = static_cast<uint32_t>(count);
  AddToFigure(&heaptap_statistics::active, UnitBytes(chunk, count) - UnitBytes(chunk, old_count));
  observer::ActiveGrew();
  return true;
}

bool Purge(uint64_t milliseconds) {
  uint64_t now = CoarseMilliseconds();
  uint64_t free_before = now < milliseconds ? 0 : now - milliseconds;
  bool purged = PurgeHuge(milliseconds);
  for (const Chunks* chunks : {&short_chunks, &long_chunks}) {
    Chunk* chunk = chunks->first();
    // Acquire: the next chunk's header is written.
    for (; chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire)) {
      purged |= PurgeChunk(chunk, free_before, now);
    }
  }
  if (purged) AddTo(&purge_rounds, 1);
  return purged;
}

void PurgeExcess() {
  if (HEAPTAP_LIKELY(ReadFigure(&heaptap_statistics::dirty) <= DirtyBound())) return;
  Chunk* oldest = nullptr;
  uint64_t since = kNeverDirty;
  for (const Chunks* chunks : {&short_chunks, &long_chunks}) {
    Chunk* chunk = chunks->first();
    // Acquire: the next chunk's header is written.
    for (; chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire)) {
      const uint64_t dirty_since = chunk->dirty_since.load(std::memory_order_relaxed);
      if (dirty_since >= since) continue;
      oldest = chunk;
      since = dirty_since;
    }
  }
  const uint64_t now = CoarseMilliseconds();
  if (oldest != nullptr && PurgeChunk(oldest, now, now)) AddTo(&purge_rounds, 1);
}

Chunk* FirstChunk(unsigned shift) { return ChunksOf(shift).first(); }

void SetHuge(const void* pointer, bool exists) {
  MutexLock lock(units_mutex);
  SetChunkKind(pointer, exists ? kHuge : kFreedHuge);
}

uintptr_t VisitHuge(uintptr_t address, void (*visit)(void* opaque, void* pointer), void* opaque) {
  units_mutex.Lock();
  size_t index = (address + kChunkSize - 1) >> kChunkShift;
  if (index < table_begin) index = table_begin;
  const size_t end = table_end;
  units_mutex.Unlock();
  // The lock is not held during the search, which may be long.
  for (; index < end; index++) {
    if (chunk_table[index].load(std::memory_order_relaxed) != kHuge) continue;
    MutexLock lock(units_mutex);
    if (chunk_table[index].load(std::memory_order_relaxed) != kHuge) continue;  // freed meanwhile
    uintptr_t found = static_cast<uintptr_t>(index) << kChunkShift;
    visit(opaque, reinterpret_cast<void*>(found));
    return found;
  }
  return 0;
}

TableRange UsedTable() {
  MutexLock lock(units_mutex);
  if (table_end == 0) return {chunk_table, 0};
  return {chunk_table + table_begin, table_end - table_begin};
}

bool IsFreeUnit(const Slab* slab) {
  HEAPTAP_ASSERT(IsUnit(slab));
  MutexLock lock(units_mutex);
  return NextFree(ChunkOf(slab), UnitIndex(slab)) == UnitIndex(slab);
}

PurgeCounts ReadPurgeCounts() {
  return {purge_rounds.load(std::memory_order_relaxed), purge_calls.load(std::memory_order_relaxed),
          purged_bytes.load(std::memory_order_relaxed)};
}

#ifdef HEAPTAP_DEBUG

void CheckLockedUnits(UnitSums* sums) {
  HEAPTAP_ASSERT((units_mutex.IsMine() && purge_mutex.IsMine()) || IsOnlyThread());
  for (const Chunks* chunks : {&short_chunks, &long_chunks}) {
    chunks->Check();
    const Chunk* chunk = chunks->first();
    for (; chunk != nullptr; chunk = chunk->next.load(std::memory_order_relaxed)) CheckChunk(chunk, sums);
  }
  CheckChunkTable(table_begin, table_end, *sums);
  const heaptap_statistics& figures = ::heaptap_control.statistics;
  CheckEqual("figure of dirty bytes == dirty units and kept huge blocks", &figures,
             ReadFigure(&heaptap_statistics::dirty), sums->dirty_bytes + KeptHugeBytes());
  CheckAtMost("used units <= figure of active bytes", &figures, sums->used_bytes,
              ReadFigure(&heaptap_statistics::active));
  CheckAtMost("chunks <= figure of mapped bytes", &figures, sums->chunk_bytes, ReadFigure(&heaptap_statistics::mapped));
}

bool CheckUnits(UnitSums* sums) {
  if (!purge_mutex.TryLock()) return false;
  LockHugeCache();
  units_mutex.Lock();
  CheckLockedUnits(sums);
  units_mutex.Unlock();
  UnlockHugeCache();
  purge_mutex.Unlock();
  return true;
}

#endif

void LockUnits() {
  purge_mutex.Lock();
  LockHugeCache();
  units_mutex.Lock();
}

void UnlockUnits() {
  units_mutex.Unlock();
  UnlockHugeCache();
  purge_mutex.Unlock();
}

void ResetUnitsLocks() {
  units_mutex.Reset();
  ResetHugeCacheLock();
  purge_mutex.Reset();
}

}  // namespace heaptap
