// SPDX-License-Identifier: Apache-2.0
//
// The allocator's statistics at one moment, in jemalloc's terms, for stats.* of mallctl and malloc_stats_print.
//
// Ready blocks of a heap count as allocated, as blocks in jemalloc's thread caches do. There is one arena. A bin is a
// small class (size_class.h), an extent class is a larger class; extent class i is class kSmallClasses + i.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/size_class.h"

namespace heaptap {

inline constexpr unsigned kExtentClasses = kClasses - kSmallClasses;

// Numbers of events since the start, unless a comment says otherwise.
//
//   allocations - frees == live
//
// An allocation is a block that was made ready, or that a slow path gave to the program. A request is a block that the
// program got. Requests of other threads lag by at most one batch each. A small block with an alignment that no slab
// provides counts in the bin of its size, but in no slab.
struct ClassStatistics {
  uint64_t allocations;
  uint64_t frees;
  uint64_t requests;
  uint64_t fills;    // refills of ready lists
  uint64_t flushes;  // of ready lists
  uint64_t slabs_made;
  size_t live;           // blocks now
  size_t slabs;          // now
  size_t slabs_nonfull;  // now
};

// Free extents (adjacent free units), by page class (size_class.h). A dirty extent has old contents, and its size is
// that of the contents; a retained extent has none.
struct FreeExtentStatistics {
  size_t dirty;
  size_t dirty_bytes;
  size_t retained;
  size_t retained_bytes;
};

// Bytes at the time of the snapshot. It may contain some of the effects of other threads that run at the same time.
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
  uint64_t epoch;  // the number of the snapshot; the first is 1
  size_t allocated;
  size_t active;
  size_t metadata;
  size_t resident;
  size_t mapped;
  size_t retained;
  size_t dirty;
  size_t allocated_small;
  size_t allocated_large;
  size_t ready;  // ready blocks; those of other threads as of their last refill
  ClassStatistics bins[kSmallClasses];
  ClassStatistics extents[kExtentClasses];
  FreeExtentStatistics free_extents[kPageClasses];
  uint64_t purges;       // purges that returned memory
  uint64_t purge_calls;  // their system calls
  uint64_t purged_bytes;
  uint64_t uptime;   // nanoseconds since the start of the process
  unsigned threads;  // the number of threads with a heap
};

// epoch: takes a new snapshot. Visits all slabs, and asks the system about each page of the allocator. Any thread, no
// lock held; so for the others below.
void TakeSnapshot();
// Copies the last snapshot. Takes one first if there is none.
void LastSnapshot(Snapshot* snapshot);
// Access to the last snapshot without a copy, which would be too large for the stack of a small thread. Other threads
// that need the snapshot wait.
class SnapshotScope {
 public:
  // `copy`: look at this one instead, without a lock; nullptr: at the last.
  explicit SnapshotScope(const Snapshot* copy = nullptr);
  ~SnapshotScope();
  SnapshotScope(const SnapshotScope&) = delete;
  SnapshotScope& operator=(const SnapshotScope&) = delete;

  const Snapshot& operator*() const;
  const Snapshot* operator->() const { return &**this; }

 private:
  const Snapshot* copy_;
};

// The epoch of the last snapshot; 0: there is none.
uint64_t SnapshotEpoch();

// Called when the process starts: the beginning of `uptime`.
void StartSnapshots();
// For the child of a fork, where the parent's snapshot is invalid.
void ResetSnapshotsAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_
