// SPDX-License-Identifier: Apache-2.0
//
// Which slabs of a heap return their free pages, and when (sparse_slab.h).
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/decay.h"
#include "allocator/core/heap.h"

namespace heaptap {
namespace {

// The most slabs that one slow path looks at. Looking at a slab takes a few microseconds, and returning a row of pages
// takes one microsecond more, so the search stops once enough is returned.
constexpr int kLooks = 8;

// A class with fewer queued slabs needs their free blocks itself.
constexpr uint32_t kSpareSlabs = 4;

// A slab is searched again when one part in this many of its blocks has become free since the last search.
constexpr uint32_t kSearchShare = 16;

// Whether the slab had free blocks at the last call, and has at least as many now.
bool IsIdle(Slab* slab) {
  const uint32_t free = slab->carved - slab->used;
  const bool is_idle = slab->seen_free != 0 && free >= slab->seen_free;
  slab->seen_free = free;
  return is_idle;
}

}  // namespace

// Returns the free pages of the slab to the system. The result is their bytes. `is_thorough`: searches the slab even if
// it was searched a moment ago or probably has no free page.
size_t Heap::ReturnPagesOf(Slab* slab, bool is_thorough) {
  CollectRemote(slab);
  if (IsEmptied(slab)) {
    if (slab != classes[slab->size_class].empty) SlabEmptied(slab);
    return 0;
  }
  const uint32_t free = slab->carved - slab->used;
  if (free < slab->searched_free) slab->searched_free = free;
  if (!is_thorough && (free < slab->searched_free + slab->capacity / kSearchShare || !MayHaveFreePages(slab))) return 0;
  Settle(slab);
  const size_t bytes = ReturnFreePages(slab);
  slab->searched_free = slab->carved - slab->used;
  return bytes;
}

void Heap::MakeUpFor(size_t bytes, unsigned size_class) {
  if (DirtyDecay() < 0) return;
  for (int i = 0; i < kLooks && returned_ahead < bytes; i++) {
    Slab* slab = NextQueued(&growing);
    if (slab == nullptr) {
      growing = kFirstSparse;
      break;
    }
    // The class that grows needs its free blocks, too.
    const bool is_spare = slab->size_class != size_class && classes[slab->size_class].queue.count() >= kSpareSlabs;
    if (is_spare && IsIdle(slab)) returned_ahead += ReturnPagesOf(slab, false);
  }
  returned_ahead -= returned_ahead < bytes ? returned_ahead : bytes;
}

void Heap::BeginAging() {
  if (is_aging) return;
  is_aging = true;
  aging = kFirstSparse;
}

void Heap::AgeSome() {
  for (int i = 0; i < kLooks; i++) {
    Slab* slab = NextQueued(&aging);
    if (slab == nullptr) {
      is_aging = false;
      return;
    }
    if (IsIdle(slab) && ReturnPagesOf(slab, false) != 0) return;
  }
}

void Heap::ReturnAllFreePages() {
  QueuePosition position = kFirstSparse;
  while (Slab* slab = NextQueued(&position)) ReturnPagesOf(slab, true);
}

}  // namespace heaptap
