// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/check.h"
#include "allocator/platform/mutex.h"

#ifdef HEAPTAP_DEBUG
namespace heaptap {
namespace {

bool IsFree(const Chunk* chunk, size_t unit) { return (chunk->free_bits[unit / 64] >> unit % 64 & 1) != 0; }

uintptr_t OwnerOf(const Slab* slab) { return slab->owner.load(std::memory_order_relaxed); }

void CheckFreeUnit(const Chunk* chunk, const Slab* unit, UnitSums* sums) {
  CheckEqual("owner of a free unit == kNobody", unit, OwnerOf(unit), kNobody);
  if (!unit->dirty) {
    CheckEqual("of a clean free unit: touched == 0", unit, unit->touched, 0);
    return;
  }
  CheckAtMost("of a dirty unit: dirty_since of the chunk <= free_since", unit,
              chunk->dirty_since.load(std::memory_order_relaxed), unit->free_since);
  CheckAtMost("touched <= bytes of a unit", unit, unit->touched, size_t{1} << chunk->shift);
  sums->dirty_bytes += size_t{1} << chunk->shift;
}

// Checks the units of the slab or run that begins with unit `first`. Returns their number. The owner word may not be
// set yet: the thread that gets the slab or run sets it.
size_t CheckTenant(const Chunk* chunk, size_t first, UnitSums* sums) {
  const Slab* slab = reinterpret_cast<const Slab*>(chunk) + first;
  const size_t count = slab->units;
  CheckAtMost("1 <= units of a slab or run", slab, 1, count);
  CheckAtMost("units of a slab or run end before the chunk does", slab, first + count, chunk->units);
  const uintptr_t owner = OwnerOf(slab);
  if (owner == kRunOwner) CheckEqual("a run is in a chunk of short units", slab, chunk->shift, kShortShift);
  if (owner != kNobody && owner != kRunOwner) CheckEqual("units of a slab == 1", slab, count, 1);
  for (const Slab* unit = slab; unit != slab + count; unit++) {
    CheckThat("a unit of a slab or run is in use", unit, !IsFree(chunk, first + static_cast<size_t>(unit - slab)));
    CheckThat("a unit in use is not dirty", unit, !unit->dirty);
    if (unit != slab) CheckEqual("owner of a unit inside a run == kNobody", unit, OwnerOf(unit), kNobody);
  }
  sums->owned += owner == sums->owner && owner != kNobody;
  sums->used_bytes += count << chunk->shift;
  if (owner != kNobody && owner != kRunOwner) {
    for (const uint64_t pages : slab->returned_pages) {
      sums->used_bytes -= static_cast<size_t>(__builtin_popcountll(pages)) * kPageSize;
    }
  }
  return count;
}

// Checks the free bits, one by one.
void CheckFreeBits(const Chunk* chunk) {
  CheckThat("unit 0 is not free", chunk, !IsFree(chunk, 0));
  size_t longest = 0;
  size_t in_a_row = 0;
  for (size_t unit = 1; unit < 8 * sizeof(chunk->free_bits); unit++) {
    if (IsFree(chunk, unit)) {
      CheckLess("a free unit exists: unit < units", chunk, unit, chunk->units);
      if (++in_a_row > longest) longest = in_a_row;
    } else {
      CheckThat("from reach on all units are free", chunk, unit < chunk->reach || unit >= chunk->units);
      in_a_row = 0;
    }
  }
  CheckEqual("longest == the most free units in a row", chunk, chunk->longest, longest);
}

}  // namespace

void CheckChunk(const Chunk* chunk, UnitSums* sums) {
  HEAPTAP_ASSERT((Mutex::Holds(LockRank::kUnits) && Mutex::Holds(LockRank::kPurge)) || IsOnlyThread());
  CheckEqual("shift == chunk_table", chunk, chunk->shift, ChunkKind(chunk));
  CheckAtMost("units <= kChunkSize >> shift", chunk, chunk->units, kChunkSize >> chunk->shift);
  CheckAtMost("reach <= units", chunk, chunk->reach, chunk->units);
  CheckFreeBits(chunk);
  for (size_t unit = 1; unit < chunk->reach;) {
    if (IsFree(chunk, unit)) {
      CheckFreeUnit(chunk, reinterpret_cast<const Slab*>(chunk) + unit, sums);
      unit++;
    } else {
      unit += CheckTenant(chunk, unit, sums);
    }
  }
  sums->looked_at += chunk->reach;
  sums->chunk_bytes += size_t{chunk->units} << chunk->shift;
  sums->chunks[chunk->shift == kLongShift]++;
}

void CheckChunkTable(size_t begin, size_t end, const UnitSums& sums) {
  HEAPTAP_ASSERT((Mutex::Holds(LockRank::kUnits) && Mutex::Holds(LockRank::kPurge)) || IsOnlyThread());
  size_t chunks[2] = {0, 0};
  for (size_t index = begin; index < end; index++) {
    const uint8_t kind = chunk_table[index].load(std::memory_order_relaxed);
    if (kind <= kFreedHuge) continue;
    CheckThat("chunk_table has kinds of memory and unit shifts only", &chunk_table[index],
              kind == kShortShift || kind == kLongShift);
    chunks[kind == kLongShift]++;
  }
  CheckEqual("entries of chunk_table == chunks of short units", chunk_table, chunks[0], sums.chunks[0]);
  CheckEqual("entries of chunk_table == chunks of long units", chunk_table, chunks[1], sums.chunks[1]);
}

}  // namespace heaptap
#endif
