// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/borrow.h"
#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/heap_list.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread_exit.h"
#include "allocator/core/units.h"
#include "allocator/platform/libc.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/random.h"
#include "allocator/platform/system.h"

namespace heaptap {

namespace {

// The thread has parked its heap: only libc and destructors of other libraries still run on it.
constinit thread_local bool thread_finished = false;

// nullptr: the caller must use the fallback heap.
Heap* AttachHeap() {
  observer::BeforeUse();
  if (current_heap != &empty_heap) return current_heap;  // BeforeUse has allocated, and so attached a heap
  if (thread_finished) return nullptr;
  Heap* heap = AdoptOrMakeHeap(main_arena);
  if (heap == nullptr) return nullptr;
  SetHeapOfThread(heap);
  return heap;
}

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

// A borrower ends after it has visited this many slabs: the owner may be waiting.
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

// Takes what others have freed there, in at most so many steps of a borrower.
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
  // A GiB of small slabs, which takes some milliseconds: rounds are rare in a process that allocates little.
  constexpr int kMostSteps = 64;
  if (Heap* heap = FindIdleHeap()) ReclaimFrom(heap, kMostSteps);
}

// Scavenges the parked heaps in turn, one a call. `returns_pages`: also the free pages of slabs that have used blocks.
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

// Collects what was freed to the shared heap of an arena, one arena a call.
void ScavengeNextArena() {
  static constinit std::atomic<unsigned> next;
  const unsigned index = next.fetch_add(1, std::memory_order_relaxed) % ArenaCount();
  Arena& arena = ArenaOf(static_cast<ArenaIndex>(index));
  if (!arena.mutex.TryLock()) return;
  arena.heap.Scavenge();
  arena.mutex.Unlock();
}

// The calling thread ends.
void ParkHeapOfThread(Heap* heap) {
  observer::ThreadEnds();
  {
    HeapScope scope;
    scope->Flush();
  }
  heap->CountForNobody();
  thread_finished = true;
  current_heap = &empty_heap;
  MutexLock lock(heaps_mutex);
  Park(heap);
}

void ReportNoKey() {
  static constinit std::atomic<bool> is_reported;
  if (is_reported.exchange(true, std::memory_order_relaxed)) return;
  Message message;
  message << "<heaptap>: the process has no pthread key left for the allocator: the memory of a thread that has ended "
             "is used again when other threads start\n";
  message.Print();
}

// The heap is parked at the end of the calling thread, which uses it.
void AwaitEnd(Heap* heap) {
  // Without libc's threads there is one thread.
  if (AwaitExit(heap, ParkHeapOfThread) || !libc::FindThreadFunctions()) return;
  // The thread's own counters go with it.
  heap->CountForNobody();
  NoteThread(heap);
  ReportNoKey();
}

}  // namespace

Heap* HeapScope::AttachOrLockHeap() {
  Heap* heap = AttachHeap();
  if (heap != nullptr) return heap;
  main_arena.mutex.Lock();
  return &main_arena.heap;
}

HeapScope::HeapScope(Arena& arena) : heap_(&arena.heap) {
  arena.mutex.Lock();
  heap_->busy.store(1, std::memory_order_relaxed);
}

void HeapScope::UnlockSharedHeap(Heap& heap) { ArenaOf(heap.arena).mutex.Unlock(); }

void SetHeapOfThread(Heap* heap) {
  current_heap = heap;
  // May allocate, with the heap already attached.
  AwaitEnd(heap);
}

void StartSharedHeap(Heap& heap) {
  observer::StartHeap(&heap, observer_seed);
  heap.CountForNobody();
}

void StartThreads(uint64_t seed) {
  observer_seed = seed;
  StartSharedHeap(main_arena.heap);
}

void PrepareThreadExits() { TakeExitKey(ParkHeapOfThread); }

void MaintainProcess(DueMaintenance due) {
  observer::SlowPathEnds();
  if (due == DueMaintenance::kRound) ReturnMemory();
}

void ReturnMemory() {
  ScavengeParkedHeap(false);
  ScavengeNextArena();
  ReclaimFromIdleHeap();
  ssize_t decay = DirtyDecay();
  if (decay >= 0) Purge(static_cast<uint64_t>(decay));
}

void VisitHeaps(void (*visit)(void* opaque, const Heap* heap), void* opaque) {
  visit(opaque, &empty_heap);
  ForEachArena([=](Arena& arena) { visit(opaque, &arena.heap); });
  for (const Heap* heap = FirstHeap(); heap != nullptr; heap = heap->next) visit(opaque, heap);
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

#ifdef HEAPTAP_DEBUG
void CheckHeaps() {
  uint64_t heaps = 0;
  uint64_t parked = 0;
  for (const Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    CheckLess("a heap is on the list of all once", heap, heaps++, heap_serial);
    parked += heap->state == HeapState::kParked;
    const bool is_mine = heap == current_heap && heap->busy.load(std::memory_order_relaxed) == 0;
    if (is_mine || heap->state == HeapState::kParked) CheckHeap(heap);
  }
  CheckEqual("heaps on the list of all == heaps made", all_heaps, heaps, heap_serial);
  uint64_t waiting = 0;
  for (const Heap* heap = parked_heaps; heap != nullptr; heap = heap->next_parked, waiting++) {
    CheckThat("last_parked is the last parked heap", heap, heap->next_parked != nullptr || heap == last_parked);
    CheckEqual("a heap on the list of parked ones: state == kParked", heap, static_cast<uint64_t>(heap->state),
               static_cast<uint64_t>(HeapState::kParked));
    CheckLess("a heap is on the list of parked ones once", heap, waiting, parked);
    CheckThat("a parked heap has no counters", heap, heap->counters == &heap->nobodys);
  }
  CheckEqual("heaps on the list of parked ones == parked heaps", parked_heaps, waiting, parked);
  CheckEqual("parked_count == parked heaps", parked_heaps, parked_count, parked);
  ForEachArena([](Arena& arena) { CheckHeap(&arena.heap); });
}
#endif

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
    // As below, for the slow path of a signal handler's thread.
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
