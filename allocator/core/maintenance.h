// SPDX-License-Identifier: Apache-2.0
//
// Periodic work: returning memory to the system, and collecting the blocks that were freed to parked heaps and to
// sleeping threads. Slow paths do the work, at most about every 50 ms, and so does the background thread
// (process/background_thread.h) if there is one.
#ifndef HEAPTAP_ALLOCATOR_CORE_MAINTENANCE_H_
#define HEAPTAP_ALLOCATOR_CORE_MAINTENANCE_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/heap.h"

namespace heaptap {

// The work that is due for the process at the end of a slow path.
enum class DueMaintenance : uint8_t {
  kNothing,
  kTriggers,  // the observer's
  kRound,     // the observer's, and returning memory
};

// Reads the clock, does the work that is due for the heap, and returns what is due for the process.
DueMaintenance MaintainHeap(Heap* heap);

// Counts a slow path of the heap. Calls MaintainHeap when the count is used up. REQUIRES: the caller uses the heap.
inline DueMaintenance CountSlowPath(Heap* heap) {
  HEAPTAP_ASSERT(heap->busy.load(std::memory_order_relaxed) != 0);
  if (HEAPTAP_LIKELY(heap->ticks_left != 0)) {
    heap->ticks_left--;
    return DueMaintenance::kNothing;
  }
  return MaintainHeap(heap);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_MAINTENANCE_H_
