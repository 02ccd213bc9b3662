// SPDX-License-Identifier: Apache-2.0
//
// Which heap a thread works on.
//
// Every thread begins with the empty heap, whose ready lists are empty and which owns no slab, so that malloc and free
// need no test for a first call: both take their slow paths, which attach a heap. When the thread exits its heap is
// parked, and adopted by a thread that starts later. What a thread still allocates after that comes from the late heap,
// which all such threads share under a lock.
#ifndef HEAPTAP_ALLOCATOR_CORE_THREAD_H_
#define HEAPTAP_ALLOCATOR_CORE_THREAD_H_

#include "allocator/core/heap.h"
#include "allocator/core/maintenance.h"

namespace heaptap {

// Exclusive use of a heap for the length of a slow path: the thread's own, which is attached if need be, or the late
// heap, which is locked. Never fails. Not recursive. No probe may fire while one lives. On its end it may give memory
// back to the system, and do what the observer wants done (observer.h, SlowPathEnds), which may last for
// seconds: so none ends while a lock is held.
class HeapScope {
 public:
  HeapScope();
  ~HeapScope();
  HeapScope(const HeapScope&) = delete;
  HeapScope& operator=(const HeapScope&) = delete;

  Heap* operator->() const { return heap_; }
  Heap& operator*() const { return *heap_; }

 private:
  Heap* heap_;
};

// Counts a slow path that needs no heap, so that maintenance comes due after it too. No lock held, in no HeapScope.
inline void TickSlowPath() { HeapScope heap; }

// Once for the process, before any heap is used. `seed` is for the observer of the heaps.
void StartThreads(uint64_t seed);

// Does what is due for the process. No lock held, in no HeapScope.
void MaintainProcess(DueMaintenance due);

// Calls `visit` for every heap there is, with the late heap and the empty one, which other threads may be using. For
// what may be read then.
void VisitHeaps(void (*visit)(void* opaque, const Heap* heap), void* opaque);

// Gives back what the calling thread and all parked heaps hold without need.
void ScavengeHeaps();

// fork(2): locks and unlocks all heaps that have a lock. In the child the locks are reset, the heaps of the threads
// that are no more are parked, or abandoned if they were being changed, and the observer of each begins anew with
// another random stream, others for each number of forks.
void LockHeaps();
void UnlockHeaps();
void ResetHeapLocks();
void ResetHeapsAfterFork(uint64_t forks);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_THREAD_H_
