// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread.h"

#include <limits.h>
#include <pthread.h>

#include "allocator/core/borrow.h"
#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/observer.h"
#include "allocator/core/units.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {

namespace {

// The thread has parked its heap: only libc and destructors of other libraries still run on it.
constinit thread_local bool thread_finished = false;

constinit Heap fallback_heap{};
constinit Mutex fallback_mutex{LockRank::kFallbackHeap};

constinit Mutex heaps_mutex{LockRank::kHeaps};  // for the next four variables, and for fields of Heap (heap.h)
Heap* all_heaps;
Heap* parked_heaps;
uint64_t heap_serial;
uint64_t seed;

// The round of thread-specific destructors in which the heap is parked. Other destructors may still allocate and free,
// so it is the last round, except with ThreadSanitizer, which needs the last one itself.
#ifdef __SANITIZE_THREAD__
constexpr int kExitRound = PTHREAD_DESTRUCTOR_ITERATIONS - 1;
#else
constexpr int kExitRound = PTHREAD_DESTRUCTOR_ITERATIONS;
#endif

pthread_key_t exit_key;
bool has_exit_key;

void Park(Heap* heap) {
  heap->state = HeapState::kParked;
  heap->next_parked = parked_heaps;
  parked_heaps = heap;
}

Heap* MakeHeap() {
  constexpr size_t kHeapBytes = (sizeof(Heap) + kPageSize - 1) & ~(kPageSize - 1);
  Heap* heap = static_cast<Heap*>(MapAligned(kHeapBytes, kPageSize));
  if (heap == nullptr) return nullptr;
  AddToFigure(&heaptap_statistics::mapped, kHeapBytes);
  AddToFigure(&heaptap_statistics::metadata, kHeapBytes);
  heap->serial = ++heap_serial;
  observer::StartHeap(heap, seed, heap->serial);
  heap->next = all_heaps;
  all_heaps = heap;
  return heap;
}

// nullptr: out of memory.
Heap* AdoptOrMakeHeap() {
  MutexLock lock(heaps_mutex);
  Heap* heap = parked_heaps;
  if (heap != nullptr) {
    parked_heaps = heap->next_parked;
  } else {
    heap = MakeHeap();
    if (heap == nullptr) return nullptr;
  }
  if (heap->orphaned) {
    // The new owner must not be charged for the frees of the old thread.
    heap->Flush();
    observer::RestartHeap(heap, seed);
  }
  heap->orphaned = false;
  heap->counters = &thread_counters;
  heap->state = HeapState::kOwned;
  heap->exit_rounds = 0;
  observer::AdoptHeap(heap);
  return heap;
}

// nullptr: the caller must use the fallback heap.
Heap* AttachHeap() {
  observer::BeforeUse();
  if (current_heap != &empty_heap) return current_heap;  // BeforeUse has allocated, and so attached a heap
  if (thread_finished) return nullptr;
  Heap* heap = AdoptOrMakeHeap();
  if (heap == nullptr) return nullptr;
  current_heap = heap;
  // May allocate, with the heap already attached.
  if (has_exit_key) pthread_setspecific(exit_key, heap);
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

// A borrower ends after this many wakes, or with the class in whose queue it has visited the last of so many slabs: the
// owner may be waiting.
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
  unsigned size_class = 0;
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
      progress->has_all_queues = borrowed->ReclaimQueues(kVisitsOfBorrower, &progress->size_class, &free_slabs);
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

// Scavenges the parked heaps in turn, one a call.
void ScavengeParkedHeap() {
  if (!heaps_mutex.TryLock()) return;
  Heap* heap = parked_heaps;
  if (heap != nullptr) {
    heap->Scavenge();
    // Move it to the end of the list.
    Heap** end = &parked_heaps;
    while (*end != nullptr) end = &(*end)->next_parked;
    parked_heaps = heap->next_parked == nullptr ? heap : heap->next_parked;
    if (parked_heaps != heap) *end = heap;
    heap->next_parked = nullptr;
  }
  heaps_mutex.Unlock();
}

void OnThreadExit(void* argument) {
  Heap* heap = static_cast<Heap*>(argument);
  if (++heap->exit_rounds < kExitRound && pthread_setspecific(exit_key, heap) == 0) return;
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

}  // namespace

Heap* HeapScope::AttachOrLockHeap() {
  Heap* heap = AttachHeap();
  if (heap != nullptr) return heap;
  fallback_mutex.Lock();
  fallback_heap.CountForNobody();
  return &fallback_heap;
}

void HeapScope::UnlockFallbackHeap() { fallback_mutex.Unlock(); }

void StartThreads(uint64_t observer_seed) {
  seed = observer_seed;
  observer::StartHeap(&fallback_heap, seed, 0);
  has_exit_key = pthread_key_create(&exit_key, OnThreadExit) == 0;
}

void MaintainProcess(DueMaintenance due) {
  observer::SlowPathEnds();
  if (due == DueMaintenance::kRound) ReturnMemory();
}

void ReturnMemory() {
  ScavengeParkedHeap();
  ReclaimFromIdleHeap();
  ssize_t decay = DirtyDecay();
  if (decay >= 0) Purge(static_cast<uint64_t>(decay));
}

void VisitHeaps(void (*visit)(void* opaque, const Heap* heap), void* opaque) {
  visit(opaque, &empty_heap);
  visit(opaque, &fallback_heap);
  MutexLock lock(heaps_mutex);
  for (const Heap* heap = all_heaps; heap != nullptr; heap = heap->next) visit(opaque, heap);
}

void ScavengeHeaps() {
  {
    HeapScope scope;
    scope->Flush();
  }
  Heap* heap;
  {
    MutexLock lock(heaps_mutex);
    heap = all_heaps;
  }
  // Heaps stay on the list, which grows at its beginning.
  for (; heap != nullptr; heap = heap->next) {
    // Bounded, because other threads may go on freeing.
    constexpr int kMostSteps = 1 << 12;
    ReclaimFrom(heap, kMostSteps);
    MutexLock lock(heaps_mutex);
    if (heap->state == HeapState::kParked) heap->Scavenge();
  }
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
    CheckEqual("a heap on the list of parked ones: state == kParked", heap, static_cast<uint64_t>(heap->state),
               static_cast<uint64_t>(HeapState::kParked));
    CheckLess("a heap is on the list of parked ones once", heap, waiting, parked);
    CheckThat("a parked heap has no counters", heap, heap->counters == &heap->nobodys);
  }
  CheckEqual("heaps on the list of parked ones == parked heaps", parked_heaps, waiting, parked);
  CheckHeap(&fallback_heap);
}
#endif

void LockHeaps() {
  heaps_mutex.Lock();
  fallback_mutex.Lock();
}

void UnlockHeaps() {
  fallback_mutex.Unlock();
  heaps_mutex.Unlock();
}

void ResetHeapLocks() {
  heaps_mutex.Reset();
  fallback_mutex.Reset();
}

void ResetHeapsAfterFork(uint64_t forks) {
  seed += forks;  // each child has another seed, which is the same in every run
  observer::RestartHeap(&fallback_heap, seed);
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    if (heap == current_heap || heap->state != HeapState::kOwned) {
      // A signal handler may have forked in the middle of a slow path, which must find its heap unchanged.
      if (heap->busy.load(std::memory_order_relaxed) == 0) observer::RestartHeap(heap, seed);
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
