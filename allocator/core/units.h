// SPDX-License-Identifier: Apache-2.0
//
// The supply of units: chunks from the system, units from chunks, and the way back. One lock for all of it, a leaf.
//
// A free unit whose contents are unknown is dirty; Purge gives dirty units back to the system, after which they are
// clean: they read as zero and take no memory. Chunks are never unmapped.
//
// Any thread may call any function here once the process runs; zero-initialised state is valid: no chunk.
#ifndef HEAPTAP_ALLOCATOR_CORE_UNITS_H_
#define HEAPTAP_ALLOCATOR_CORE_UNITS_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/slab.h"

namespace heaptap {

// The largest run: larger blocks are huge.
inline constexpr size_t kRunMaximum = 16 * 1024 * 1024;

// `count` units in a row of 1 << shift bytes each, the first at an address that is a multiple of `alignment` units (a
// power of two). Returns the descriptor of the first, with `units`, `fresh` (all of it reads as zero) and `sampled`
// set; its owner word is the caller's to set. nullptr: out of memory.
Slab* AllocateUnits(unsigned shift, size_t count, size_t alignment);

// A new, empty slab of the class with that owner word. nullptr: out of memory.
Slab* NewSlab(unsigned size_class, uintptr_t owner);

// Frees the units of a slab or a run. REQUIRES: nobody uses them or has a pending wake for them.
void ReleaseUnits(Slab* slab);

// Makes a run longer or shorter where it lies. False if the units behind it are not free.
bool ResizeUnits(Slab* run, size_t count);

// Gives back to the system what has been free for at least `milliseconds`. True if that was anything.
bool Purge(uint64_t milliseconds);

// Whether the unit is free. REQUIRES: it is one of a chunk.
bool IsFreeUnit(const Slab* slab);

// For the statistics. ----------------------------------------------------------------------------------------------

// The first of the chunks with units of that size; Chunk::next leads to the others. Needs no lock.
Chunk* FirstChunk(unsigned shift);

// What chunk_table says about the huge block (large.h) that begins there; `exists` false before it goes; the
// address is remembered.
void SetHuge(const void* pointer, bool exists);

// The first huge block at or behind `address`: calls `visit`, during which the block does not go, and returns its
// address. 0: there is none.
uintptr_t VisitHuge(uintptr_t address, void (*visit)(void* opaque, void* pointer), void* opaque);

// The part of chunk_table that has ever been written.
struct TableRange {
  const void* begin;
  size_t bytes;
};
TableRange UsedTable();

// How many slabs of the class NewSlab has made.
uint64_t SlabsMade(unsigned size_class);

struct PurgeCounts {
  uint64_t rounds;  // that gave something back
  uint64_t calls;   // of the system
  uint64_t bytes;
};
PurgeCounts ReadPurgeCounts();
// Tells the kernel what thp of MALLOC_CONF says about new memory. Where that says nothing, huge pages are forbidden,
// unless `kernel_may_decide`.
void AdviseHugePages(void* address, size_t size, bool kernel_may_decide);

// fork(2): holds and releases the locks; Reset is for the child.
void LockUnits();
void UnlockUnits();
void ResetUnitsLocks();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_UNITS_H_
