// SPDX-License-Identifier: Apache-2.0
//
// The heap that a thread uses.
//
// Every thread begins with the empty heap, which has no ready blocks and owns no slab. So malloc and free need no test
// for a first call: both take their slow paths, which attach a heap. When the thread exits, its heap is parked until a
// later thread adopts it. A thread that allocates after that, or for which there is no memory for a heap, uses the
// fallback heap, which all such threads share under a lock: the shared heap of arena 0 (arena.h).
#ifndef HEAPTAP_ALLOCATOR_CORE_THREAD_H_
#define HEAPTAP_ALLOCATOR_CORE_THREAD_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/borrow.h"
#include "allocator/core/check.h"
#include "allocator/core/heap.h"
#include "allocator/core/maintenance.h"
#include "allocator/platform/mutex.h"

namespace heaptap {

#ifdef HEAPTAP_DEBUG
// Whether the calling thread holds no lock, and is in no HeapScope.
inline bool IsOutsideSlowPaths() {
  return !Mutex::HoldsAny() && current_heap->busy.load(std::memory_order_relaxed) == 0;
}
#endif

// Does the work that is due for the process. REQUIRES: no lock is held, the thread is in no HeapScope.
void MaintainProcess(DueMaintenance due);

struct Arena;

// Exclusive use of a heap for the length of a slow path. The heap is the thread's own, which is attached if need be, or
// a shared heap, which is locked: the shared heap of the given arena, or else the fallback heap. Never fails. Not
// recursive. No probe may fire in a HeapScope. The destructor may return memory to the system and do the observer's
// work (observer.h, SlowPathEnds), which may take seconds. REQUIRES: no lock is held at its end.
class HeapScope {
 public:
  HeapScope() : heap_(current_heap) {
    if (HEAPTAP_UNLIKELY(heap_ == &empty_heap)) heap_ = AttachOrLockHeap();
    SetBusy(heap_);
    // Acquire: pairs with the end of a borrower's work.
    if (HEAPTAP_UNLIKELY(heap_->borrowed.load(std::memory_order_acquire) != 0)) WaitForBorrower(heap_);
  }
  explicit HeapScope(Arena& arena);
  ~HeapScope() {
    const DueMaintenance due = CountSlowPath(heap_);
    CheckSlowPath(heap_);
    // All changes come before `busy` is cleared. Release: for a borrower.
    heap_->busy.store(0, std::memory_order_release);
    if (HEAPTAP_UNLIKELY(IsShared(*heap_))) UnlockSharedHeap(*heap_);
    HEAPTAP_ASSERT(!Mutex::HoldsAny());
    if (HEAPTAP_UNLIKELY(due != DueMaintenance::kNothing)) MaintainProcess(due);
  }
  HeapScope(const HeapScope&) = delete;
  HeapScope& operator=(const HeapScope&) = delete;

  Heap* operator->() const { return heap_; }
  Heap& operator*() const { return *heap_; }

 private:
  // The thread's own heap, which is attached, or else the fallback heap, which is locked.
  static Heap* AttachOrLockHeap();
  static void UnlockSharedHeap(Heap& heap);

  Heap* heap_;
};

// Counts a slow path that needs no heap towards maintenance. REQUIRES: no lock is held, the thread is in no HeapScope.
inline void TickSlowPath() {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  HeapScope heap;
}

// Called once, before any heap is used. `seed`: for the observer's state of the heaps.
void StartThreads(uint64_t seed);
// Prepares for the end of threads. Called before other libraries have taken all keys of thread-specific data; a later
// call is possible too. REQUIRES: no lock is held.
void PrepareThreadExits();
// The calling thread uses this heap from now on. REQUIRES: AdoptOrMakeHeap has made the heap the thread's.
void SetHeapOfThread(Heap* heap);
// Starts the observer's state of a shared heap. REQUIRES: the lock of heaps is held, or the heap is arena 0's.
void StartSharedHeap(Heap& heap);

// Returns to the system the free memory that is due, and collects the blocks that were freed to a parked heap or to a
// sleeping thread. REQUIRES: no lock is held, the thread is in no HeapScope.
void ReturnMemory();

// Calls `visit` for every heap, including the empty heap and the shared ones, while other threads may be using them.
void VisitHeaps(void (*visit)(void* opaque, const Heap* heap), void* opaque);

// Releases the empty slabs of the calling thread's heap and of all parked and shared heaps, and those slabs of other
// threads' heaps whose blocks other threads have freed.
void ScavengeHeaps();

#ifdef HEAPTAP_DEBUG
// Checks the lists of heaps; the calling thread's heap, unless a signal handler has interrupted a slow path; the parked
// heaps; the shared heaps (check.h). REQUIRES: the caller holds the locks of this file, or is the only thread.
void CheckHeaps();
#endif

// fork(2): takes and releases the locks of this file; Reset is for the child.
void LockHeaps();
void UnlockHeaps();
void ResetHeapLocks();
// For the child of a fork: parks the heaps of the parent's other threads, or abandons those that were being changed,
// and restarts the observer's state of all heaps. The seed depends on `forks`, the number of forks so far.
void ResetHeapsAfterFork(uint64_t forks);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_THREAD_H_
