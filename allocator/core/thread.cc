// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread.h"

#include <stdint.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/heap_list.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread_exit.h"
#include "allocator/platform/libc.h"
#include "allocator/platform/mutex.h"
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

// Arranges for the heap to be parked when the calling thread, which uses it, ends.
void AwaitEnd(Heap* heap) {
  // Without libc's thread functions there is only one thread.
  if (AwaitExit(heap, ParkHeapOfThread) || !libc::FindThreadFunctions()) return;
  // The thread's own counters disappear with the thread.
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
  SetBusy(heap_);
}

void HeapScope::UnlockSharedHeap(Heap& heap) { ArenaOf(heap.arena).mutex.Unlock(); }

void SetHeapOfThread(Heap* heap) {
  HEAPTAP_ASSERT(heap->state == HeapState::kOwned && heap->counters == &thread_counters);
  current_heap = heap;
  // May allocate, with the heap already attached.
  AwaitEnd(heap);
}

void StartSharedHeap(Heap& heap) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine() || &heap == &main_arena.heap);
  observer::StartHeap(&heap, observer_seed);
  heap.CountForNobody();
}

void StartThreads(uint64_t seed) {
  observer_seed = seed;
  StartSharedHeap(main_arena.heap);
}

void PrepareThreadExits() {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  TakeExitKey(ParkHeapOfThread);
}

void VisitHeaps(void (*visit)(void* opaque, const Heap* heap), void* opaque) {
  visit(opaque, &empty_heap);
  ForEachArena([=](Arena& arena) { visit(opaque, &arena.heap); });
  for (const Heap* heap = FirstHeap(); heap != nullptr; heap = heap->next) visit(opaque, heap);
}

}  // namespace heaptap
