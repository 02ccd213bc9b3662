// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread.h"

#include <limits.h>
#include <pthread.h>

#include "allocator/core/control.h"
#include "allocator/core/observer.h"
#include "allocator/core/units.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {

namespace {

// The thread's heap is parked already: only destructors of others, and libc itself, still run on this thread.
constinit thread_local bool thread_finished = false;

constinit Heap fallback_heap{};
constinit Mutex fallback_mutex;

constinit Mutex heaps_mutex;  // for what follows, and the fields of heaps that say so
Heap* all_heaps;
Heap* parked_heaps;
uint64_t heap_serial;
uint64_t seed;

// In which round of the thread's destructors its heap is parked. The destructors of others may still allocate and
// free, so it is the last one; but ThreadSanitizer needs that for itself.
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
    // What its last thread did is none of this one's business.
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

// nullptr: the thread has to do with the late heap.
Heap* AttachHeap() {
  observer::BeforeUse();
  if (current_heap != &empty_heap) return current_heap;  // BeforeUse has allocated
  if (thread_finished) return nullptr;
  Heap* heap = AdoptOrMakeHeap();
  if (heap == nullptr) return nullptr;
  current_heap = heap;
  // May allocate; that finds the heap attached.
  if (has_exit_key) pthread_setspecific(exit_key, heap);
  return heap;
}

// In the child of a fork: a thread that is no more was about to wake the slab's heap. By now the slab may be anybody's.
void RestoreWakeOf(Slab* slab) {
  const uintptr_t owner = slab->owner.load(std::memory_order_relaxed) & ~(kFullBit | kSlowBit);
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    if (reinterpret_cast<uintptr_t>(heap) != owner) continue;
    // One that was being changed is used no more, or its thread goes on with the change.
    if (heap->busy.load(std::memory_order_relaxed) == 0) heap->RestoreWake(slab);
    return;
  }
}

// Scavenges one of the parked heaps, in turn.
void ScavengeParkedHeap() {
  if (!heaps_mutex.TryLock()) return;
  Heap* heap = parked_heaps;
  if (heap != nullptr) {
    heap->Scavenge();
    // To the end of the line.
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
  {
    HeapScope scope;
    scope->Flush();
  }
  heap->counters = nullptr;
  thread_finished = true;
  current_heap = &empty_heap;
  MutexLock lock(heaps_mutex);
  Park(heap);
}

}  // namespace

HeapScope::HeapScope() : heap_(current_heap) {
  if (heap_ == &empty_heap) heap_ = AttachHeap();
  if (heap_ == nullptr) {
    fallback_mutex.Lock();
    heap_ = &fallback_heap;
    return;
  }
  HEAPTAP_ASSERT(heap_->busy.load(std::memory_order_relaxed) == 0);
  heap_->busy.store(1, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

HeapScope::~HeapScope() {
  DueMaintenance due = CountSlowPath(heap_);
  if (heap_ == &fallback_heap) {
    fallback_mutex.Unlock();
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    heap_->busy.store(0, std::memory_order_relaxed);
  }
  if (HEAPTAP_UNLIKELY(due != DueMaintenance::kNothing)) MaintainProcess(due);
}

void StartThreads(uint64_t observer_seed) {
  seed = observer_seed;
  observer::StartHeap(&fallback_heap, seed, 0);
  has_exit_key = pthread_key_create(&exit_key, OnThreadExit) == 0;
}

void MaintainProcess(DueMaintenance due) {
  observer::SlowPathEnds();
  if (due != DueMaintenance::kRound) return;
  ScavengeParkedHeap();
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
  MutexLock lock(heaps_mutex);
  for (Heap* heap = parked_heaps; heap != nullptr; heap = heap->next_parked) heap->Scavenge();
}

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
  seed += forks;  // another seed for each child, the same in each run
  observer::RestartHeap(&fallback_heap, seed);
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    if (heap == current_heap || heap->state != HeapState::kOwned) {
      // Not if a signal handler has forked in the middle of a slow path.
      if (heap->busy.load(std::memory_order_relaxed) == 0) observer::RestartHeap(heap, seed);
      continue;
    }
    heap->counters = nullptr;
    heap->orphaned = true;
    if (heap->busy.load(std::memory_order_relaxed) != 0) {
      heap->state = HeapState::kAbandoned;
    } else {
      Park(heap);
    }
  }
  for (Heap* heap = all_heaps; heap != nullptr; heap = heap->next) {
    // The calling thread goes on with what a signal handler's fork has interrupted.
    Slab* slab = heap == current_heap ? nullptr : heap->waking.exchange(nullptr, std::memory_order_relaxed);
    if (slab != nullptr) RestoreWakeOf(slab);
  }
}

}  // namespace heaptap
