// SPDX-License-Identifier: Apache-2.0
//
// Debug builds check the equations that slab.h, heap.h, chunks.h and units.h state. An equation that does not hold is
// printed, with the address of the object and the values of both sides, and the process aborts:
//
//   <heaptap>: check failed at 0x00007f0000000080: |local_free| == carved - used (3, 4)
//
// Checks run
//   - after every kCheckInterval-th slow path of a thread, or after each with debug_check:true in MALLOC_CONF: the
//     thread's heap and the units (CheckSlowPath). A large heap is checked less often, so that checks take a fixed
//     share of the time;
//   - in the handlers of fork: the heaps that the calling thread may read, the pools of sampled blocks, the units;
//   - in the stress test, after each step.
//
// Equations and bounds: a value that only a slab's owner or a lock's holder changes is checked as an equation. Other
// threads push on Slab::remote_free and Heap::wakes at any time, but only the owner takes blocks or slabs off. A check
// reads such a list once. All that it finds there stays until the check ends, but it misses what is pushed later. So
// the following are checked as bounds, or not at all:
//
//   live == used - ready - |remote_free|     live blocks are on no list: ready + |remote_free| <= used
//   active == used units + huge blocks       huge blocks are counted without a lock: used units <= active
//   full, kNotifyBit is clear => a wake is on its way     not checked: the other thread may not have pushed it yet
//
// A block that the program frees twice breaks equations too.
//
// Free changes two fields of a slab, one after the other. A thread that is interrupted between the two leaves one free
// block too many or too few: in its own heap, if a signal handler forks then; in an orphaned heap, if another thread
// forks then. `check_slack` allows for that block: it is 1 in the handlers of fork, and for good in a child that has
// orphaned heaps.
#ifndef HEAPTAP_ALLOCATOR_CORE_CHECK_H_
#define HEAPTAP_ALLOCATOR_CORE_CHECK_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/slab.h"

namespace heaptap {

struct Heap;

#ifdef HEAPTAP_DEBUG

inline constexpr uint32_t kCheckInterval = 64;
// How many blocks and units are looked at for each slow path.
inline constexpr uint32_t kCheckedPerSlowPath = 32;

// By how many blocks |local_free| may differ from carved - used. Changes in the handlers of fork only.
extern std::atomic<uint32_t> check_slack;

// Print the equation and abort if it does not hold. Any thread.
void CheckEqual(const char* equation, const void* object, uint64_t left, uint64_t right);
void CheckLess(const char* equation, const void* object, uint64_t left, uint64_t right);
void CheckAtMost(const char* equation, const void* object, uint64_t left, uint64_t right);
inline void CheckThat(const char* statement, const void* object, bool holds) {
  CheckEqual(statement, object, holds, 1);
}

// Whether the calling thread is the only one of the process, apart from ThreadSanitizer's own.
bool IsOnlyThread();

// Checks a slab of a heap or of a pool of sampled blocks. Returns how many blocks it has looked at. REQUIRES: the
// caller is the heap's user, or holds the pool's lock.
size_t CheckSlab(const Slab* slab);

// How much a check has seen.
struct Checked {
  size_t slabs;   // on queues
  size_t blocks;  // free ones
};

// Checks the slabs of a class that are on a heap's or a pool's list. `owner`: the owner word of each slab. REQUIRES: as
// above.
void CheckQueue(const SlabList& queue, unsigned size_class, uintptr_t owner, Checked* checked);

// Checks a heap, with the slabs on its queues and on its list of wakes. REQUIRES: the caller uses the heap, or the heap
// has no user and the caller holds the lock of heaps.
Checked CheckHeap(const Heap* heap);

// What CheckChunk adds up.
struct UnitSums {
  uintptr_t owner;  // set by the caller: `owned` counts the slabs with that owner word
  size_t owned;
  size_t looked_at;
  size_t chunks[2];  // with short units, with long units
  size_t chunk_bytes;
  size_t used_bytes;
  size_t dirty_bytes;
};

// REQUIRES: the caller holds the locks of units, including the lock for purging.
void CheckChunk(const Chunk* chunk, UnitSums* sums);

// Checks chunk_table, whose entries outside [begin, end) have never been written. `sums`: those of all chunks.
// REQUIRES: as above.
void CheckChunkTable(size_t begin, size_t end, const UnitSums& sums);

// Checks the heap, all units, and that each slab of the heap that is not full is on one of its queues. While another
// thread purges, checks only the heap. Returns how many blocks and units it has looked at. REQUIRES: the caller is the
// heap's user; no lock is held but that of a shared heap.
size_t CheckHeapAndUnits(const Heap* heap);

// What HeapScope does at its end. REQUIRES: as above.
void CheckSlowPath(const Heap* heap);

#else

inline void CheckSlowPath(const Heap*) {}

#endif

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_CHECK_H_
