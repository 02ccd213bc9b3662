// SPDX-License-Identifier: Apache-2.0
//
// The allocator's statistics at one moment, in jemalloc's terms, for stats.* of mallctl and malloc_stats_print.
//
// Ready blocks of a thread's heap count as allocated, as blocks in jemalloc's thread caches do; a shared heap has none
// (core/arena.h). A bin is a small class (size_class.h), an extent class is a larger class; extent class i is class
// kSmallClasses + i.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_

#include <stddef.h>
#include <stdint.h>

#include <array>
#include <numeric>

#include "allocator/core/size_class.h"

namespace heaptap {

inline constexpr unsigned kExtentClasses = kClasses - kSmallClasses;

// The bytes of a slab of a bin, as shown: like jemalloc's, the fewest whole pages that hold whole blocks. heaptap's own
// slabs (slab.h) are much larger, and the untouched and returned pages in them use no memory. Programs take all blocks
// of the shown slabs for memory: redis shows the blocks that are not live as its fragmentation.
inline constexpr std::array<size_t, kSmallClasses> kBinSlabSize = [] {
  std::array<size_t, kSmallClasses> sizes{};
  for (unsigned c = 0; c < kSmallClasses; c++) sizes[c] = std::lcm(kPageSize, size_t{kClassSize[c]});
  return sizes;
}();
// The blocks of such a slab.
constexpr uint32_t BinSlabBlocks(unsigned bin) { return static_cast<uint32_t>(kBinSlabSize[bin] / kClassSize[bin]); }

// Numbers of events since the start, unless a comment says otherwise.
//
//   allocations - frees == live
//
// An allocation is a block that was made ready, or that a slow path gave to the program. A request is a block that the
// program got. Requests of other threads lag by at most one batch each. A small block with an alignment that no slab
// provides counts in the bin of its size.
//
// Slabs are counted as slabs of kBinSlabSize bytes:
//
//   slabs          as many as the bin's active bytes fill, and one for each block that is in none of heaptap's slabs
//   slabs_nonfull  those that would have a free block if the live blocks lay together, less one: jemalloc does not
//                  count the slab from which it takes blocks
//   slabs_made     as if all blocks of each of heaptap's slabs had been made ready
struct ClassStatistics {
  uint64_t allocations;
  uint64_t frees;
  uint64_t requests;
  uint64_t fills;    // refills of ready lists
  uint64_t flushes;  // of ready lists
  uint64_t slabs_made;
  size_t live;           // blocks now
  size_t active;         // bytes now, of a bin: of pages of slabs, as Snapshot::active
  size_t slabs;          // now
  size_t slabs_nonfull;  // now
};

// Free extents (adjacent free units), by page class (size_class.h). A dirty extent has old contents, and its size is
// the size of the contents; a retained extent has no contents.
struct FreeExtentStatistics {
  size_t dirty;
  size_t dirty_bytes;
  size_t retained;
  size_t retained_bytes;
};

// The figures of one arena, or the sums of several. Bytes at the time of the snapshot, which may contain some of the
// effects of other threads that run at the same time. What arenas share counts for arena 0: the descriptors of chunks,
// and free units.
//
//   allocated  the usable sizes of the live blocks
//   active     the pages of large blocks, and the pages of slabs from which blocks were ever made ready
//   metadata   the chunks' descriptors, the chunk table, the heaps, the descriptors of huge blocks
//   dirty      old contents of free units
//   mapped     active + metadata + dirty + old contents of used slabs: the address space in use
//   retained   address space of the allocator that is not in use: never touched, or returned to the system
//   resident   the part of the allocator's address space that the system reports as resident. Large blocks that the
//              program has not touched make it smaller than mapped, huge pages make it larger.
struct Snapshot {
  size_t allocated;
  size_t active;
  size_t metadata;
  size_t resident;
  size_t mapped;
  size_t retained;
  size_t dirty;
  size_t allocated_small;
  size_t allocated_large;
  size_t ready;  // bytes of ready blocks; of other threads, as of their last refill
  ClassStatistics bins[kSmallClasses];
  ClassStatistics extents[kExtentClasses];
  FreeExtentStatistics free_extents[kPageClasses];
  uint64_t purges;       // purges that returned memory
  uint64_t purge_calls;  // their system calls
  uint64_t purged_bytes;
  uint64_t uptime;   // nanoseconds since the start of the process
  uint64_t threads;  // the number of threads with a heap
};
static_assert(sizeof(Snapshot) % sizeof(uint64_t) == 0);

// Indices of arenas in statistics, besides the indices of single arenas.
inline constexpr size_t kAllArenas = 4096;
inline constexpr size_t kDestroyedArenas = 4097;

// epoch: takes a new snapshot. Visits all slabs, and asks the system about each page of the allocator. Any thread, no
// lock held; this applies to all functions below.
void TakeSnapshot();

// Access to the figures of the last snapshot without a copy, which would be too large for the stack of a small thread.
// Takes a snapshot if there is none. Other threads that need a snapshot wait.
class SnapshotScope {
 public:
  // The figures of an arena; an arena that has been made since the last snapshot has no figures yet. `copy`: looks at
  // these figures instead, without a lock. REQUIRES: the arena was made, or is one of the two above.
  explicit SnapshotScope(size_t arena = kAllArenas, const Snapshot* copy = nullptr);
  ~SnapshotScope();
  SnapshotScope(const SnapshotScope&) = delete;
  SnapshotScope& operator=(const SnapshotScope&) = delete;

  const Snapshot& operator*() const { return *figures_; }
  const Snapshot* operator->() const { return figures_; }

 private:
  const Snapshot* figures_;
  bool is_locked_;
};

// Copies the figures of an arena, as above.
void LastSnapshot(Snapshot* snapshot, size_t arena = kAllArenas);

// The number of the last snapshot; the first is 1. 0: there is none.
uint64_t SnapshotEpoch();

// Room for the figures of an explicit arena, which are 0 until the next snapshot. False: out of memory.
bool ClearSnapshotOf(size_t arena);
// Adds the figures of an arena, as a new snapshot has them, to the figures of the destroyed arenas.
void AddToDestroyed(size_t arena);
// Whether there are figures of destroyed arenas.
bool HasDestroyedArenas();

// Called when the process starts: the beginning of `uptime`.
void StartSnapshots();
// For the child of a fork, where the parent's snapshot is invalid.
void ResetSnapshotsAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_
