// SPDX-License-Identifier: Apache-2.0
//
// The supply of units: gets chunks from the system, and units from chunks. One lock protects all of it; no other lock
// is taken under it.
//
// A free unit with unknown contents is dirty. Purge returns dirty units to the system, after which they are clean: they
// read as zero and take no memory. Chunks are never unmapped.
//
// Any thread, any time after StartProcess. Zero-initialised state is valid: no chunk.
#ifndef HEAPTAP_ALLOCATOR_CORE_UNITS_H_
#define HEAPTAP_ALLOCATOR_CORE_UNITS_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/slab.h"

namespace heaptap {

// The largest run: larger blocks are huge.
inline constexpr size_t kRunMaximum = 16 * 1024 * 1024;

// `count` consecutive units of 1 << shift bytes each, the first at a multiple of `alignment` units (a power of two).
// Returns the descriptor of the first, with `units`, `fresh` (all of it reads as zero) and `sample` set; the caller
// sets the owner word. nullptr: out of memory.
Slab* AllocateUnits(unsigned shift, size_t count, size_t alignment);

// A new, empty slab of the class with this owner word. nullptr: out of memory.
Slab* NewSlab(unsigned size_class, uintptr_t owner, ArenaIndex arena);

// Frees the units of a slab or a run. `dirty`: false if they read as zero and take no memory. REQUIRES: no block of it
// is used, and no wake for it is pending.
void ReleaseUnits(Slab* slab, bool dirty = true);

// Gives a run new pages, which read as zero, whatever the program has done to the old ones. False: the system refuses.
bool RenewUnits(Slab* run);

// Makes a run longer or shorter in place. False: the units behind it are not free, and nothing has changed.
bool ResizeUnits(Slab* run, size_t count);

// Returns to the system the units and huge blocks that have been free for at least `milliseconds`. True if any were
// returned.
bool Purge(uint64_t milliseconds);

// If more than DirtyBound() is dirty: returns the units of one chunk, the one whose dirty units have waited longest. A
// chunk is small enough for the caller to wait. A process that frees much at once is left with no more than the bound.
void PurgeExcess();

// Returns pages of a slab to the system, and notes them in Slab::returned_pages. They no longer count as active. False:
// the system refuses, and nothing has changed.
bool ReturnPages(Slab* slab, uint32_t first, uint32_t count);
// Undoes the note of a returned page that will be used again, or of all pages. TakePage REQUIRES: IsPageReturned.
void TakePage(Slab* slab, uint32_t page);
void TakeAllPages(Slab* slab);

// Whether the unit is free. REQUIRES: it belongs to a chunk.
bool IsFreeUnit(const Slab* slab);

// For the statistics. ----------------------------------------------------------------------------------------------

// The first chunk with units of this size; Chunk::next leads to the others. Needs no lock.
Chunk* FirstChunk(unsigned shift);

// Enters the huge block (large.h) at `pointer` in chunk_table. With `exists` false: marks it freed, which must happen
// before it is unmapped.
void SetHuge(const void* pointer, bool exists);

// Calls `visit` for the first huge block at or after `address`, and returns its address. The block is not unmapped
// during the call. 0: there is none.
uintptr_t VisitHuge(uintptr_t address, void (*visit)(void* opaque, void* pointer), void* opaque);

// The part of chunk_table that was ever written.
struct TableRange {
  const void* begin;
  size_t bytes;
};
TableRange UsedTable();

struct PurgeCounts {
  uint64_t rounds;  // calls of Purge or PurgeExcess that returned memory
  uint64_t calls;   // system calls
  uint64_t bytes;
};
PurgeCounts ReadPurgeCounts();

#ifdef HEAPTAP_DEBUG
// Checks all chunks, chunk_table and the figures of units (check.h). CheckUnits checks nothing and returns false while
// another thread purges. CheckLockedUnits REQUIRES: the caller holds the locks of this file, or is the only thread.
struct UnitSums;
bool CheckUnits(UnitSums* sums);
void CheckLockedUnits(UnitSums* sums);
#endif

// fork(2): takes and releases the locks of this file; Reset is for the child.
void LockUnits();
void UnlockUnits();
void ResetUnitsLocks();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_UNITS_H_
