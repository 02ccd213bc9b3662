// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/huge_cache.h"

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/slab.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// A kept mapping serves for blocks from half its size to twice its size: larger changes cost more than they save.
constexpr size_t kMostRatio = 2;

struct Entry {
  Huge* huge;
  size_t mapped;
  uint64_t free_since;
};

constinit Mutex cache_mutex{LockRank::kHugeCache};
// Under cache_mutex; the oldest first.
constinit Entry entries[kMostKeptHuge]{};
constinit unsigned entry_count;
constinit size_t kept_bytes;

// Blocks that have left the cache and are unmapped once the lock is released.
struct Leaving {
  Huge* blocks[kMostKeptHuge];
  unsigned count = 0;
};

// REQUIRES: cache_mutex is held.
Huge* Remove(unsigned index) {
  HEAPTAP_ASSERT(cache_mutex.IsMine());
  Huge* huge = entries[index].huge;
  kept_bytes -= entries[index].mapped;
  AddToFigure(&heaptap_statistics::dirty, -static_cast<int64_t>(entries[index].mapped));
  entry_count--;
  for (unsigned i = index; i < entry_count; i++) entries[i] = entries[i + 1];
  return huge;
}

void UnmapAll(const Leaving& leaving) {
  for (unsigned i = 0; i < leaving.count; i++) UnmapHuge(leaving.blocks[i]);
}

}  // namespace

void KeepHuge(Huge* huge) {
  const size_t mapped = huge->mapped;
  const size_t bound = DirtyDecay() == 0 ? 0 : DirtyBound();
  // What the program has done to some of the pages (mprotect, madvise) ends with the block.
  if (mapped > bound || !IsOneMapping(huge, mapped)) return UnmapHuge(huge);
  Leaving leaving;
  {
    MutexLock lock(cache_mutex);
    while (entry_count == kMostKeptHuge || kept_bytes + mapped > bound) leaving.blocks[leaving.count++] = Remove(0);
    entries[entry_count++] = {.huge = huge, .mapped = mapped, .free_since = CoarseMilliseconds()};
    kept_bytes += mapped;
    AddToFigure(&heaptap_statistics::dirty, static_cast<int64_t>(mapped));
  }
  UnmapAll(leaving);
}

Huge* TakeHuge(size_t mapped) {
  MutexLock lock(cache_mutex);
  // The smallest that is large enough, or else the largest.
  unsigned best = kMostKeptHuge;
  for (unsigned i = 0; i < entry_count; i++) {
    const size_t size = entries[i].mapped;
    if (size / kMostRatio > mapped || mapped / kMostRatio > size) continue;
    if (best == kMostKeptHuge) {
      best = i;
      continue;
    }
    const size_t other = entries[best].mapped;
    const bool is_better = other >= mapped ? size >= mapped && size < other : size > other;
    if (is_better) best = i;
  }
  return best == kMostKeptHuge ? nullptr : Remove(best);
}

void UnmapHuge(Huge* huge) {
  const size_t mapped = huge->mapped;
  AddToFigure(&heaptap_statistics::mapped, -static_cast<int64_t>(mapped));
  AddToFigure(&heaptap_statistics::metadata, -static_cast<int64_t>(kPageSize));
  // The system may refuse to unmap a part of a larger mapping. Then the addresses are lost, and only the pages go back.
  if (!Unmap(huge, mapped + kPageSize)) DiscardPages(huge, mapped + kPageSize);
}

bool PurgeHuge(uint64_t milliseconds) {
  Leaving leaving;
  {
    MutexLock lock(cache_mutex);
    const uint64_t now = CoarseMilliseconds();
    while (entry_count != 0 && now - entries[0].free_since >= milliseconds) {
      leaving.blocks[leaving.count++] = Remove(0);
    }
  }
  UnmapAll(leaving);
  return leaving.count != 0;
}

size_t KeptHugeBytes() {
  HEAPTAP_ASSERT(cache_mutex.IsMine() || IsOnlyThread());
  return kept_bytes;
}

unsigned ListKeptHuge(KeptHuge (&kept)[kMostKeptHuge]) {
  MutexLock lock(cache_mutex);
  for (unsigned i = 0; i < entry_count; i++) kept[i] = {.huge = entries[i].huge, .mapped = entries[i].mapped};
  return entry_count;
}

void LockHugeCache() { cache_mutex.Lock(); }

void UnlockHugeCache() { cache_mutex.Unlock(); }

void ResetHugeCacheLock() { cache_mutex.Reset(); }

}  // namespace heaptap
