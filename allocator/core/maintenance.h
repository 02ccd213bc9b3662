// SPDX-License-Identifier: Apache-2.0
//
// What has to be done now and then: giving memory back to the system, and collecting what was freed to heaps that no
// thread has. There is no background thread; slow paths do it, and look at the clock at most about every 50 ms.
#ifndef HEAPTAP_ALLOCATOR_CORE_MAINTENANCE_H_
#define HEAPTAP_ALLOCATOR_CORE_MAINTENANCE_H_

#include <sys/types.h>

#include "allocator/core/heap.h"

namespace heaptap {

// How long free memory stays dirty before it goes back to the system, in milliseconds: 0 not at all, -1 for ever.
// Holds for each heap from its next look at the clock. Any thread.
ssize_t DirtyDecay();
// REQUIRES: milliseconds >= -1.
void SetDirtyDecay(ssize_t milliseconds);

// What is due for the process at the end of a slow path.
enum class DueMaintenance : uint8_t {
  kNothing,
  kTriggers,  // what the observer wants to be done
  kRound,     // that, and giving memory back
};

// Looks at the clock, does what is due for the heap, and says what is due for the process.
DueMaintenance MaintainHeap(Heap* heap);

// Counts one slow path of the heap. Returns what MaintainHeap does, if it was time for it. For the heap's user.
inline DueMaintenance CountSlowPath(Heap* heap) {
  if (HEAPTAP_LIKELY(heap->ticks_left != 0)) {
    heap->ticks_left--;
    return DueMaintenance::kNothing;
  }
  return MaintainHeap(heap);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_MAINTENANCE_H_
