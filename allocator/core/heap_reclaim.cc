// SPDX-License-Identifier: Apache-2.0
//
// What a borrower may take from a heap (borrow.h). The owner's slow paths wait, but its fast paths go on: malloc pops
// ready blocks, and free pushes on local_free and lowers `used` of any slab that is not full. So a borrower touches
// only slabs that the fast paths cannot reach: full slabs, and slabs without a ready or live block.
#include <stdint.h>

#include <atomic>

#include "allocator/core/heap.h"

namespace heaptap {
namespace {

// The owner may lower `used` meanwhile. Acquire: pairs with PushLocalFree; what the owner has freed is on local_free.
uint32_t UsedNow(const Slab* slab) { return __atomic_load_n(&slab->used, __ATOMIC_ACQUIRE); }

// Whether other threads have freed all blocks of the slab that were ready or live. Then no fast path of the owner can
// reach the slab, and none is in the middle of a free in it: such a free has not lowered `used` yet. A double free,
// which makes the count too high or the list a cycle, is left to the owner.
bool IsFreedByOthers(Slab* slab) {
  // Acquire: pairs with FreeRemotely; the links in the blocks are written.
  const uintptr_t remote = slab->remote_free.load(std::memory_order_acquire);
  if (RemoteCount(remote) == 0 || RemoteCount(remote) != UsedNow(slab) - slab->returned) return false;
  return !IsShortCycle(RemoteBlocks(remote));
}

}  // namespace

uint64_t Heap::CountRefills() const {
  uint64_t refills = 0;
  for (const HeapClass& one : classes) refills += one.counts.refills.Read();
  return refills;
}

void Heap::Detach(Slab* slab, Slab** free_slabs) {
  HEAPTAP_ASSERT(IsEmptied(slab) && !slab->wake_pending);
  if (slab == classes[slab->size_class].empty) classes[slab->size_class].empty = nullptr;
  if (slab->queued) classes[slab->size_class].queue.Remove(slab);
  owed_frees += UnsettledBytes(slab);
  slab->used_settled = slab->used;
  if (slab->returned != 0) RenewSlab(slab);
  slab->owner.store(kNobody, std::memory_order_relaxed);
  slab->next = *free_slabs;
  *free_slabs = slab;
}

bool Heap::ReclaimWakes(uint32_t most, Slab** free_slabs) {
  Slab* kept = nullptr;
  bool is_end = false;
  for (uint32_t i = 0; i < most; i++) {
    Slab* slab = NextWake();
    is_end = slab == nullptr;
    if (is_end) break;
    // A full slab is the borrower's as long as its owner word says that it is full.
    const bool is_full = !slab->queued;
    if (!is_full && !IsFreedByOthers(slab)) {
      // The owner may be using the slab, so its next slow path handles the wake.
      slab->wake_pending = true;
      slab->wake_next = kept;
      kept = slab;
      continue;
    }
    CollectRemote(slab);
    if (IsEmptied(slab)) {
      Detach(slab, free_slabs);
    } else if (is_full && HasBlocks(slab)) {
      MarkNotFull(slab);
    } else if (is_full) {
      classes[slab->size_class].queue.PushBack(slab);
      MarkFull(slab);
    }
  }
  while (kept != nullptr) {
    // The slab goes on `wakes`, not on `taken_wakes`, so that the next call begins with other slabs.
    Slab* slab = kept;
    kept = slab->wake_next;
    PushWake(this, slab);
  }
  return is_end;
}

Slab* Heap::NextQueued(QueuePosition* position) {
  while (true) {
    while (position->left == 0) {
      if (position->next_class == kSmallClasses) return nullptr;
      position->left = classes[position->next_class++].queue.count();
    }
    position->left--;
    SlabList& queue = classes[position->next_class - 1].queue;
    Slab* slab = queue.first();
    if (slab != nullptr) {
      queue.MoveFirstToBack();
      return slab;
    }
    position->left = 0;  // the owner has taken the other slabs off the queue meanwhile
  }
}

bool Heap::ReclaimQueues(uint32_t most, QueuePosition* position, Slab** free_slabs) {
  while (most-- != 0) {
    Slab* slab = NextQueued(position);
    if (slab == nullptr) return true;
    if (slab->wake_pending) continue;
    if (slab == classes[slab->size_class].empty) {
      Detach(slab, free_slabs);
    } else if (IsFreedByOthers(slab)) {
      CollectRemote(slab);
      if (IsEmptied(slab)) Detach(slab, free_slabs);
    }
  }
  return false;
}

}  // namespace heaptap
