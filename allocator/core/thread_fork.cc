// SPDX-License-Identifier: Apache-2.0
//
// fork(2) and the heaps: their locks, and what the child does with the heaps of the parent's other threads.
#include <stdint.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/check.h"
#include "allocator/core/heap_list.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread.h"
#include "allocator/platform/random.h"

namespace heaptap {
namespace {

// In the child of a fork: a thread of the parent was about to send a wake for the slab, which may have another owner by
// now.
void RestoreWakeOf(Slab* slab) {
  const uintptr_t owner = slab->owner.load(std::memory_order_relaxed) & ~(kFullBit | kSlowBit);
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    if (reinterpret_cast<uintptr_t>(heap) != owner) continue;
    // A busy heap is abandoned, or its thread continues with the change.
    if (heap->busy.load(std::memory_order_relaxed) == 0) heap->RestoreWake(slab);
    return;
  }
}

}  // namespace

void LockHeaps() {
  heaps_mutex.Lock();
  ForEachArena([](Arena& arena) { arena.mutex.Lock(); });
}

void UnlockHeaps() {
  ForEachArena([](Arena& arena) { arena.mutex.Unlock(); });
  heaps_mutex.Unlock();
}

void ResetHeapLocks() {
  ForEachArena([](Arena& arena) { arena.mutex.Reset(); });
  heaps_mutex.Reset();
}

void ResetHeapsAfterFork(uint64_t forks) {
  observer_seed = Random::SeedOfChild(observer_seed, forks);  // the same in every run
  ForEachArena([](Arena& arena) {
    // As below: a signal handler may have forked in the middle of a slow path.
    if (arena.heap.busy.load(std::memory_order_relaxed) == 0) observer::RestartHeap(&arena.heap, observer_seed);
  });
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    const bool is_used = heap->state == HeapState::kOwned || heap->state == HeapState::kScavenged;
    if (heap == current_heap) RenumberThread(heap);
    if (heap == current_heap || !is_used) {
      // A signal handler may have forked in the middle of a slow path, which must find its heap unchanged.
      if (heap->busy.load(std::memory_order_relaxed) == 0) observer::RestartHeap(heap, observer_seed);
      continue;
    }
    heap->CountForNobody();
    heap->orphaned = true;
#ifdef HEAPTAP_DEBUG
    check_slack.store(1, std::memory_order_relaxed);
#endif
    if (heap->busy.load(std::memory_order_relaxed) != 0) {
      heap->state = HeapState::kAbandoned;
    } else {
      Park(heap);
    }
  }
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    // The calling thread sends its own wake when the signal handler that has forked returns.
    Slab* slab = heap == current_heap ? nullptr : heap->waking.exchange(nullptr, std::memory_order_relaxed);
    if (slab != nullptr) RestoreWakeOf(slab);
  }
}

}  // namespace heaptap
