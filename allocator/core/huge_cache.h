// SPDX-License-Identifier: Apache-2.0
//
// Freed huge blocks whose memory is kept for the next ones: a program whose large blocks come and go would get all
// their pages anew each time. Their number and their bytes are bounded; the oldest leave first. Their memory counts as
// dirty, and goes back to the system like other dirty memory.
//
// Any thread, any time after StartProcess. Zero-initialised state is valid: no block. One lock protects all of it; no
// other lock is taken under it, and no system call is made.
#ifndef HEAPTAP_ALLOCATOR_CORE_HUGE_CACHE_H_
#define HEAPTAP_ALLOCATOR_CORE_HUGE_CACHE_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/slab.h"

namespace heaptap {

// The descriptor of a huge block, in the page before it.
struct Huge {
  size_t size;    // usable
  size_t mapped;  // bytes of the mapping, without the descriptor's page
  // How many bytes at the beginning earlier blocks in this mapping may have written; when a block begins, all other
  // bytes read as zero.
  size_t written;
  uint64_t sample;   // its serial number as a sample; 0: it is not a sample
  size_t requested;  // the size that the program requested
  ArenaIndex arena;
};

// Keeps a block that is no longer used, or unmaps it.
void KeepHuge(Huge* huge);

// A kept block whose mapping has `mapped` bytes, or a little more or less: the caller resizes it. nullptr: there is
// none.
Huge* TakeHuge(size_t mapped);

// Unmaps a block that is not in the cache. REQUIRES: its memory counts as mapped, and not as active or dirty.
void UnmapHuge(Huge* huge);

// Unmaps kept blocks that have been free for at least `milliseconds`. True if there were any.
bool PurgeHuge(uint64_t milliseconds);

// The bytes of all kept blocks. REQUIRES: the caller holds the lock, or is the only thread.
size_t KeptHugeBytes();

// For the statistics: copies what is kept, and returns the number of blocks. They may be unmapped at any time.
inline constexpr unsigned kMostKeptHuge = 16;
struct KeptHuge {
  const Huge* huge;
  size_t mapped;
};
unsigned ListKeptHuge(KeptHuge (&kept)[kMostKeptHuge]);

// fork(2), and checks: takes and releases the lock; Reset is for the child.
void LockHugeCache();
void UnlockHugeCache();
void ResetHugeCacheLock();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_HUGE_CACHE_H_
