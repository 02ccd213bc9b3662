// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/heap_list.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread_counters.h"
#include "allocator/platform/system.h"

namespace heaptap {

constinit Mutex heaps_mutex{LockRank::kHeaps};
Heap* all_heaps;
Heap* parked_heaps;
Heap* last_parked;
uint64_t parked_count;
uint64_t heap_serial;
uint64_t observer_seed;

namespace {

// Whether a thread was ever noted.
constinit std::atomic<bool> has_noted;

uint32_t ThreadId() { return static_cast<uint32_t>(SystemCall(SYS_gettid)); }

// A thread of another process may have the number by now, so a thread that has ended may seem to live.
bool Lives(uint32_t thread_id) { return SystemCall(SYS_tkill, thread_id, 0) != -ESRCH; }

// A heap of the arena whose noted thread is gone. Looks at some of the heaps, in turn. nullptr: there is none among
// them. REQUIRES: heaps_mutex is held.
Heap* FindHeapOfEndedThread(ArenaIndex arena) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine());
  if (!has_noted.load(std::memory_order_relaxed)) return nullptr;
  // More than one, so that threads which come one after the other need few heaps.
  constexpr int kLooks = 16;
  static Heap* next;  // under heaps_mutex
  for (int i = 0; i < kLooks; i++) {
    if (next == nullptr) next = all_heaps;
    if (next == nullptr) return nullptr;
    Heap* heap = next;
    next = heap->next;
    const bool is_noted = heap->state == HeapState::kOwned && heap->thread_id != 0 && heap->arena == arena;
    if (!is_noted || Lives(heap->thread_id)) continue;
    heap->thread_id = 0;
    heap->busy.store(1, std::memory_order_relaxed);
    return heap;
  }
  return nullptr;
}

// REQUIRES: heaps_mutex is held. nullptr: out of memory.
Heap* MakeHeap(ArenaIndex arena) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine());
  constexpr size_t kHeapBytes = RoundUp(sizeof(Heap), kPageSize);
  Heap* heap = static_cast<Heap*>(MapAligned(kHeapBytes, kPageSize));
  if (heap == nullptr) return nullptr;
  AddToFigure(&heaptap_statistics::mapped, kHeapBytes);
  AddToFigure(&heaptap_statistics::metadata, kHeapBytes);
  heap->serial = ++heap_serial;
  heap->arena = arena;
  observer::StartHeap(heap, observer_seed);
  heap->next = all_heaps;
  all_heaps = heap;
  return heap;
}

}  // namespace

void Park(Heap* heap) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine() || IsOnlyThread());
  heap->state = HeapState::kParked;
  heap->thread_id = 0;
  heap->next_parked = parked_heaps;
  if (parked_heaps == nullptr) last_parked = heap;
  parked_heaps = heap;
  parked_count++;
}

void ParkBehindOthers(Heap* heap) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine());
  if (parked_heaps == nullptr) return Park(heap);
  heap->state = HeapState::kParked;
  heap->next_parked = nullptr;
  last_parked->next_parked = heap;
  last_parked = heap;
  parked_count++;
}

Heap* TakeParked(int arena) {
  HEAPTAP_ASSERT(heaps_mutex.IsMine());
  Heap* before = nullptr;
  Heap* heap = parked_heaps;
  for (; heap != nullptr && arena != kAnyArena && heap->arena != arena; heap = heap->next_parked) before = heap;
  if (heap == nullptr) return nullptr;
  (before != nullptr ? before->next_parked : parked_heaps) = heap->next_parked;
  if (heap == last_parked) last_parked = before;
  parked_count--;
  heap->state = HeapState::kOwned;
  heap->busy.store(1, std::memory_order_relaxed);
  return heap;
}

void NoteThread(Heap* heap) {
  HEAPTAP_ASSERT(!heaps_mutex.IsMine());
  has_noted.store(true, std::memory_order_relaxed);
  MutexLock lock(heaps_mutex);
  heap->thread_id = ThreadId();
}

void RenumberThread(Heap* heap) {
  if (heap->thread_id != 0) heap->thread_id = ThreadId();
}

Heap* AdoptOrMakeHeap(Arena& arena) {
  Heap* heap;
  uint64_t seed;
  bool of_ended_thread = false;
  {
    MutexLock lock(heaps_mutex);
    if (arena.state.load(std::memory_order_relaxed) != ArenaState::kUsed) return nullptr;
    heap = TakeParked(arena.index);
    if (heap == nullptr) {
      heap = FindHeapOfEndedThread(arena.index);
      of_ended_thread = heap != nullptr;
    }
    if (heap == nullptr) heap = MakeHeap(arena.index);
    if (heap == nullptr) return nullptr;
    seed = observer_seed;
  }
  // The new owner must not be charged for the frees of the old thread.
  if (heap->orphaned || of_ended_thread) heap->Flush();
  if (heap->orphaned) observer::RestartHeap(heap, seed);
  heap->orphaned = false;
  heap->counters = &thread_counters;
  heap->exit_rounds = 0;
  observer::AdoptHeap(heap);
  heap->busy.store(0, std::memory_order_release);
  return heap;
}

Heap* FirstHeap() {
  MutexLock lock(heaps_mutex);
  return all_heaps;
}

}  // namespace heaptap
