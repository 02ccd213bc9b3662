// SPDX-License-Identifier: Apache-2.0
#include "units.h"

#include <iterator>

#include "mutex.h"
#include "process.h"
#include "statistics.h"
#include "system.h"
#include "triggers.h"

namespace heaptap {

constinit std::atomic<uint8_t> chunk_table[size_t{1} << (kAddressBits - kChunkShift)]{};

namespace {

constexpr size_t kChunkMinimum = 4 * 1024 * 1024;
// Where address space is limited, no chunk takes more than this part of it.
constexpr uint64_t kLimitShare = 16;

// The chunks of one unit size. Lists only grow, at their ends, so that they may be walked without the lock.
struct Supply {
  std::atomic<Chunk*> first;
  std::atomic<Chunk*>* end;
};

constinit Mutex units_mutex;
constinit Mutex purge_mutex;  // taken before units_mutex; held while units are on their way back to the system
constinit Supply short_supply{};
constinit Supply long_supply{};

// Entries of chunk_table outside [table_begin, table_end) have never been written. Under units_mutex.
size_t table_begin = std::size(chunk_table);
size_t table_end;

constinit std::atomic<uint64_t> purge_rounds;
constinit std::atomic<uint64_t> purge_calls;
constinit std::atomic<uint64_t> purged_bytes;

void AddTo(std::atomic<uint64_t>* count, uint64_t amount) { count->fetch_add(amount, std::memory_order_relaxed); }

// REQUIRES: units_mutex is held.
void SetChunkKind(const void* pointer, uint8_t kind) {
  size_t index = reinterpret_cast<uintptr_t>(pointer) >> kChunkShift;
  if (index < table_begin) table_begin = index;
  if (index >= table_end) table_end = index + 1;
  chunk_table[index].store(kind, std::memory_order_release);
}

Supply& SupplyOf(unsigned shift) { return shift == kShortShift ? short_supply : long_supply; }

bool IsFree(const Chunk* chunk, size_t unit) { return chunk->free_bits[unit / 64] >> (unit % 64) & 1; }

Slab* Descriptor(Chunk* chunk, size_t unit) { return reinterpret_cast<Slab*>(chunk) + unit; }

int64_t UnitBytes(const Chunk* chunk, size_t units) { return static_cast<int64_t>(units << chunk->shift); }

// The units of a slab or a run are about to be free: notes how much of them it has used.
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

// Takes units off the free ones. True if all of them are clean.
bool Take(Chunk* chunk, size_t first, size_t count) {
  bool clean = true;
  for (size_t unit = first; unit < first + count; unit++) {
    HEAPTAP_ASSERT(IsFree(chunk, unit));
    chunk->free_bits[unit / 64] &= ~(uint64_t{1} << (unit % 64));
    Slab* slab = Descriptor(chunk, unit);
    if (!slab->dirty) continue;
    clean = false;
    slab->dirty = false;
    chunk->dirty--;
    AddToFigure(&heaptap_statistics::dirty, -UnitBytes(chunk, 1));
  }
  chunk->free -= count;
  if (first + count > chunk->reach) chunk->reach = static_cast<uint32_t>(first + count);
  return clean;
}

void Give(Chunk* chunk, size_t first, size_t count, bool dirty, uint64_t now) {
  for (size_t unit = first; unit < first + count; unit++) {
    HEAPTAP_ASSERT(!IsFree(chunk, unit));
    chunk->free_bits[unit / 64] |= uint64_t{1} << (unit % 64);
    Slab* slab = Descriptor(chunk, unit);
    slab->owner.store(kNobody, std::memory_order_relaxed);
    slab->dirty = dirty;
    if (!dirty) slab->touched = 0;
    slab->free_since = now;
  }
  chunk->free += count;
  if (!dirty) return;
  chunk->dirty += count;
  AddToFigure(&heaptap_statistics::dirty, UnitBytes(chunk, count));
}

// The first of `count` free units in a row at a multiple of `alignment`; 0 if there is none.
size_t Find(const Chunk* chunk, size_t count, size_t alignment) {
  if (chunk->free < count) return 0;
  if (count == 1 && alignment == 1) {
    for (size_t word = 0; word < 8; word++) {
      if (chunk->free_bits[word] != 0) return word * 64 + __builtin_ctzll(chunk->free_bits[word]);
    }
    return 0;
  }
  size_t run = 0;
  for (size_t unit = 1; unit < chunk->units; unit++) {
    if (!IsFree(chunk, unit)) {
      run = 0;
    } else if (run != 0 || unit % alignment == 0) {
      if (++run == count) return unit + 1 - count;
    }
  }
  return 0;
}

// Short of address space, a chunk may be smaller: what is needed, but at least kChunkMinimum.
Chunk* MapChunk(size_t needed) {
  uint64_t share = AddressSpaceLimit() / kLimitShare;
  for (size_t size = kChunkSize; size >= kChunkMinimum && size >= needed; size /= 2) {
    bool can_shrink = size / 2 >= kChunkMinimum && size / 2 >= needed;
    if (size > share && can_shrink) continue;
    void* memory = MapAligned(size, kChunkSize);
    if (memory == nullptr) continue;
    AddToFigure(&heaptap_statistics::mapped, static_cast<int64_t>(size));
    Chunk* chunk = static_cast<Chunk*>(memory);
    chunk->units = static_cast<uint32_t>(size >> kShortShift);  // for now in short units; MakeChunk knows better
    return chunk;
  }
  return nullptr;
}

// A new chunk with room for `count` units at that alignment. nullptr: out of memory.
Chunk* MakeChunk(unsigned shift, size_t count, size_t alignment) {
  // Units before `alignment` are lost to the demand: unit 0 is the chunk's own.
  Chunk* chunk = MapChunk((alignment + count) << shift);
  if (chunk == nullptr) return nullptr;
  chunk->shift = shift;
  chunk->units >>= shift - kShortShift;
  for (size_t unit = 1; unit < chunk->units; unit++) chunk->free_bits[unit / 64] |= uint64_t{1} << (unit % 64);
  chunk->free = chunk->units - 1;
  Supply& supply = SupplyOf(shift);
  bool first = supply.end == nullptr;
  if (first) supply.end = &supply.first;
  // A process that needs no more than the first chunk is small: huge pages would only make it large.
  AdviseHugePages(chunk, size_t{chunk->units} << shift, !first);
  supply.end->store(chunk, std::memory_order_release);
  supply.end = &chunk->next;
  SetChunkKind(chunk, static_cast<uint8_t>(shift));
  return chunk;
}

// One stretch of units that were free for long, taken off the free ones.
struct Stretch {
  size_t first;
  size_t count;
};

Stretch TakeDirty(Chunk* chunk, size_t from, uint64_t free_before) {
  Stretch stretch{};
  for (size_t unit = from; unit < chunk->reach; unit++) {
    Slab* slab = Descriptor(chunk, unit);
    bool due = IsFree(chunk, unit) && slab->dirty && slab->free_since <= free_before;
    if (due && stretch.count == 0) stretch.first = unit;
    if (due) stretch.count++;
    if (!due && stretch.count != 0) break;
  }
  if (stretch.count != 0) Take(chunk, stretch.first, stretch.count);
  return stretch;
}

bool PurgeChunk(Chunk* chunk, uint64_t free_before, uint64_t now) {
  bool purged = false;
  size_t from = 1;
  while (true) {
    units_mutex.Lock();
    Stretch stretch = chunk->dirty == 0 ? Stretch{} : TakeDirty(chunk, from, free_before);
    units_mutex.Unlock();
    if (stretch.count == 0) return purged;
    // Memory that is locked (mlockall) cannot be discarded; it stays dirty and is tried again later.
    bool discarded = DiscardPages(SlabMemory(Descriptor(chunk, stretch.first)), stretch.count << chunk->shift);
    purged |= discarded;
    if (discarded) {
      AddTo(&purge_calls, 1);
      AddTo(&purged_bytes, stretch.count << chunk->shift);
    }
    MutexLock lock(units_mutex);
    Give(chunk, stretch.first, stretch.count, !discarded, now);
    from = stretch.first + stretch.count;
  }
}

}  // namespace

void AdviseHugePages(void* address, size_t size, bool kernel_may_decide) {
  Thp thp = ProcessConfiguration().thp;
  if (thp == Thp::kAlways) {
    AskForHugePages(address, size);
  } else if (thp == Thp::kNever || !kernel_may_decide) {
    ForbidHugePages(address, size);
  }
}

Slab* AllocateUnits(unsigned shift, size_t count, size_t alignment) {
  MutexLock lock(units_mutex);
  Chunk* chunk = SupplyOf(shift).first.load(std::memory_order_relaxed);
  size_t unit = 0;
  for (; chunk != nullptr; chunk = chunk->next.load(std::memory_order_relaxed)) {
    unit = Find(chunk, count, alignment);
    if (unit != 0) break;
  }
  if (chunk == nullptr) {
    chunk = MakeChunk(shift, count, alignment);
    if (chunk == nullptr) return nullptr;
    unit = Find(chunk, count, alignment);
  }
  Slab* slab = Descriptor(chunk, unit);
  slab->fresh = Take(chunk, unit, count);
  slab->units = static_cast<uint32_t>(count);
  slab->sampled = false;
  AddToFigure(&heaptap_statistics::active, UnitBytes(chunk, count));
  NoteActive();
  return slab;
}

void ReleaseUnits(Slab* slab) {
  Chunk* chunk = ChunkOf(slab);
  uint64_t now = CoarseMilliseconds();
  MutexLock lock(units_mutex);
  AddToFigure(&heaptap_statistics::active, -UnitBytes(chunk, slab->units));
  NoteTouched(slab);
  Give(chunk, UnitIndex(slab), slab->units, true, now);
}

bool ResizeUnits(Slab* run, size_t count) {
  Chunk* chunk = ChunkOf(run);
  size_t first = UnitIndex(run);
  uint64_t now = CoarseMilliseconds();
  MutexLock lock(units_mutex);
  size_t old_count = run->units;
  if (count < old_count) {
    NoteTouched(run);
    Give(chunk, first + count, old_count - count, true, now);
  } else {
    if (first + count > chunk->units) return false;
    for (size_t unit = first + old_count; unit < first + count; unit++) {
      if (!IsFree(chunk, unit)) return false;
    }
    Take(chunk, first + old_count, count - old_count);
  }
  run->units = static_cast<uint32_t>(count);
  AddToFigure(&heaptap_statistics::active, UnitBytes(chunk, count) - UnitBytes(chunk, old_count));
  NoteActive();
  return true;
}

bool Purge(uint64_t milliseconds) {
  if (!purge_mutex.TryLock()) return false;  // somebody else is at it
  uint64_t now = CoarseMilliseconds();
  uint64_t free_before = now < milliseconds ? 0 : now - milliseconds;
  bool purged = false;
  for (Supply* supply : {&short_supply, &long_supply}) {
    Chunk* chunk = supply->first.load(std::memory_order_acquire);
    for (; chunk != nullptr; chunk = chunk->next.load(std::memory_order_acquire)) {
      purged |= PurgeChunk(chunk, free_before, now);
    }
  }
  if (purged) AddTo(&purge_rounds, 1);
  purge_mutex.Unlock();
  return purged;
}

Chunk* FirstChunk(unsigned shift) { return SupplyOf(shift).first.load(std::memory_order_acquire); }

void SetHuge(const void* pointer, bool exists) {
  MutexLock lock(units_mutex);
  SetChunkKind(pointer, exists ? kHuge : kForeign);
}

uintptr_t VisitHuge(uintptr_t address, void (*visit)(void* opaque, void* pointer), void* opaque) {
  MutexLock lock(units_mutex);
  size_t index = (address + kChunkSize - 1) >> kChunkShift;
  if (index < table_begin) index = table_begin;
  for (; index < table_end; index++) {
    if (chunk_table[index].load(std::memory_order_relaxed) != kHuge) continue;
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

PurgeFigures ReadPurgeFigures() {
  return {purge_rounds.load(std::memory_order_relaxed), purge_calls.load(std::memory_order_relaxed),
          purged_bytes.load(std::memory_order_relaxed)};
}

void LockUnits() {
  purge_mutex.Lock();
  units_mutex.Lock();
}

void UnlockUnits() {
  units_mutex.Unlock();
  purge_mutex.Unlock();
}

void ResetUnitsLocks() {
  units_mutex.Reset();
  purge_mutex.Reset();
}

}  // namespace heaptap
