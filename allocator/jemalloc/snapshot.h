// SPDX-License-Identifier: Apache-2.0
//
// The allocator's statistics at one moment: what stats.* of mallctl and malloc_stats_print show, in jemalloc's terms.
//
// Blocks that wait on a heap's ready lists count as allocated, as those of jemalloc's thread caches do. There is one
// arena. A bin is a small class (size_class.h), an extent class a larger one; extent class i has the size of the
// (kSmallClasses + i)-th class.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/size_class.h"

namespace heaptap {

inline constexpr unsigned kExtentClasses = kClasses - kSmallClasses;

// Numbers of events since the start, unless said otherwise. allocations - frees == live. An allocation is a block made
// ready, or given to the program by a slow path; a request is only the latter. Requests of other threads lag by at most
// a batch each. Small sizes with an alignment that no slab can give are counted in the bin of their size, and in none
// of its slabs.
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

// Stretches of free units, by page class (size_class.h): those that hold something of their last tenants, by what they
// hold; and those that hold nothing.
struct FreeExtentStatistics {
  size_t dirty;
  size_t dirty_bytes;
  size_t retained;
  size_t retained_bytes;
};

// Bytes, as of the snapshot. What other threads do at the same time may be seen in part.
//
//   allocated  usable sizes of the live blocks
//   active     the pages of large blocks, and those of slabs as far as blocks were ever handed out from them
//   metadata   the chunks' descriptors, the heaps, the descriptors of huge blocks
//   dirty      what free units still hold of their last tenants
//   mapped     active + metadata + dirty + what slabs hold of their last tenants: the address space in use
//   retained   address space of the allocator that is not in use: never touched, or given back
//   resident   what of the allocator's address space is in memory, by the system's account. Large blocks that the
//              program has not touched make it smaller than mapped, huge pages make it larger.
struct Snapshot {
  uint64_t epoch;  // how often it was taken; the first is 1
  size_t allocated;
  size_t active;
  size_t metadata;
  size_t resident;
  size_t mapped;
  size_t retained;
  size_t dirty;
  size_t allocated_small;
  size_t allocated_large;
  size_t ready;  // in blocks that wait on ready lists; those of other threads as of their last refill
  ClassStatistics bins[kSmallClasses];
  ClassStatistics extents[kExtentClasses];
  FreeExtentStatistics free_extents[kPageClasses];
  uint64_t purges;       // rounds that gave memory back
  uint64_t purge_calls;  // system calls for it
  uint64_t purged_bytes;
  uint64_t uptime;   // nanoseconds since the process started to allocate
  unsigned threads;  // that have a heap
};

// epoch: takes a new snapshot, which LastSnapshot shows until the next. Any thread, no lock held. Walks all slabs, and
// asks the system about each page of the allocator.
void TakeSnapshot();
// The last one, as of the call (a copy is made under a lock); takes the first if there is none.
void LastSnapshot(Snapshot* snapshot);
// The last one for a look, without a copy, which would be too large for the stack of a small thread. Others wait
// meanwhile.
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

// 0 before the first.
uint64_t SnapshotEpoch();

// The beginning of `uptime`. For process.cc, as is the next: the child of a fork takes a new snapshot when asked.
void StartSnapshots();
void ResetSnapshotsAfterFork();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_SNAPSHOT_H_
