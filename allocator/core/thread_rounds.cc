// SPDX-License-Identifier: Apache-2.0
//
// The work for the whole process at the end of a slow path. It scavenges heaps without a thread, collects blocks that
// were freed to sleeping threads, and returns memory to the system.
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/borrow.h"
#include "allocator/core/decay.h"
#include "allocator/core/heap_list.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/platform/mutex.h"

namespace heaptap {
namespace {

// A borrower gives the heap back after it has visited this many slabs: the owner may be waiting.
constexpr uint32_t kVisitsOfBorrower = 256;

void ReleaseAll(Slab* slabs) {
  while (slabs != nullptr) {
    Slab* slab = slabs;
    slabs = slab->next;
    ReleaseUnits(slab);
  }
  PurgeExcess();
}

// How far the work of a borrower in one heap has come.
struct Progress {
  bool has_all_wakes = false;
  bool has_all_queues = false;
  QueuePosition position = {};
};

// Takes from the heap of another thread what other threads have freed there, or a part of it. False: the heap is in
// use, or the kernel does not allow it. REQUIRES: the calling thread holds no lock.
bool ReclaimStep(Heap* heap, Progress* progress) {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  Slab* free_slabs = nullptr;
  {
    MutexLock lock(heaps_mutex);
    if (heap->state != HeapState::kOwned || heap == current_heap) return false;
    BorrowedHeap borrowed(heap);
    if (!borrowed) return false;
    if (!progress->has_all_wakes) {
      progress->has_all_wakes = borrowed->ReclaimWakes(kVisitsOfBorrower, &free_slabs);
      heap->has_more = !progress->has_all_wakes;
    } else {
      progress->has_all_queues = borrowed->ReclaimQueues(kVisitsOfBorrower, &progress->position, &free_slabs);
    }
  }
  ReleaseAll(free_slabs);
  return true;
}

// Takes from the heap what other threads have freed there, in at most `steps` steps of a borrower.
void ReclaimFrom(Heap* heap, int steps) {
  Progress progress;
  for (int i = 0; i < steps && !progress.has_all_queues; i++) {
    if (!ReclaimStep(heap, &progress)) return;
  }
}

// A heap to which blocks have been freed, and whose thread has not come to collect them since the last call that looked
// at it. Looks at some of the heaps, in turn. nullptr: there is none among them, or the lock is taken.
Heap* FindIdleHeap() {
  constexpr int kLooks = 16;
  static Heap* next;  // under heaps_mutex
  if (!heaps_mutex.TryLock()) return nullptr;
  Heap* found = nullptr;
  for (int i = 0; i < kLooks && found == nullptr; i++) {
    if (next == nullptr) next = all_heaps;
    if (next == nullptr) break;
    Heap* heap = next;
    next = heap->next;
    if (heap->state != HeapState::kOwned || heap == current_heap) continue;
    if (heap->wakes.load(std::memory_order_relaxed) == nullptr && !heap->has_more) continue;
    const uint64_t refills = heap->CountRefills();
    if (refills == heap->refills_seen) found = heap;
    heap->refills_seen = refills;
  }
  heaps_mutex.Unlock();
  return found;
}

void ReclaimFromIdleHeap() {
  // These steps cover 1 GiB of small slabs and take some milliseconds: rounds are rare in a process that allocates
  // little.
  constexpr int kMostSteps = 64;
  if (Heap* heap = FindIdleHeap()) ReclaimFrom(heap, kMostSteps);
}

// Scavenges the parked heaps in turn, one for each call. `returns_pages`: also returns the free pages of slabs that
// have used blocks.
void ScavengeParkedHeap(bool returns_pages) {
  heaps_mutex.Lock();
  Heap* heap = TakeParked(kAnyArena);
  if (heap != nullptr) heap->state = HeapState::kScavenged;
  heaps_mutex.Unlock();
  if (heap == nullptr) return;
  heap->Scavenge();
  if (returns_pages) heap->ReturnAllFreePages();
  heap->busy.store(0, std::memory_order_release);
  MutexLock lock(heaps_mutex);
  ParkBehindOthers(heap);
}

// Collects what was freed to the shared heap of an arena, one arena for each call.
void ScavengeNextArena() {
  static constinit std::atomic<unsigned> next;
  const unsigned index = next.fetch_add(1, std::memory_order_relaxed) % ArenaCount();
  Arena& arena = ArenaOf(static_cast<ArenaIndex>(index));
  if (!arena.mutex.TryLock()) return;
  arena.heap.Scavenge();
  arena.mutex.Unlock();
}

}  // namespace

void MaintainProcess(DueMaintenance due) {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  observer::SlowPathEnds();
  if (due == DueMaintenance::kRound) ReturnMemory();
}

void ReturnMemory() {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  ScavengeParkedHeap(false);
  ScavengeNextArena();
  ReclaimFromIdleHeap();
  ssize_t decay = DirtyDecay();
  if (decay >= 0) Purge(static_cast<uint64_t>(decay));
}

void ScavengeHeaps() {
  {
    HeapScope scope;
    scope->Flush();
    scope->ReturnAllFreePages();
  }
  ForEachArena([](Arena& arena) {
    HeapScope scope(arena);
    scope->Flush();
    scope->ReturnAllFreePages();
  });
  for (Heap* heap = FirstHeap(); heap != nullptr; heap = heap->next) {
    // Bounded, because other threads may go on freeing.
    constexpr int kMostSteps = 1 << 12;
    ReclaimFrom(heap, kMostSteps);
  }
  heaps_mutex.Lock();
  const uint64_t parked = parked_count;
  heaps_mutex.Unlock();
  for (uint64_t i = 0; i < parked; i++) ScavengeParkedHeap(true);
}

}  // namespace heaptap
