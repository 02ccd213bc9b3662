// SPDX-License-Identifier: Apache-2.0
//
// What has to be done now and then: giving memory back to the system, and collecting what was freed to heaps that no
// thread has. There is no background thread; slow paths do it, and look at the clock at most about every 50 ms.
#ifndef HEAPTAP_ALLOCATOR_MAINTENANCE_H_
#define HEAPTAP_ALLOCATOR_MAINTENANCE_H_

#include <sys/types.h>

#include "heap.h"

namespace heaptap {

// How long free memory stays dirty before it goes back to the system, in milliseconds: 0 not at all, -1 for ever.
// Holds for each heap from its next look at the clock. Any thread.
ssize_t DirtyDecay();
// REQUIRES: milliseconds >= -1.
void SetDirtyDecay(ssize_t milliseconds);

// Looks at the clock and does what is due for the heap; true if something is due for the process too, or a
// dump.
bool MaintainHeap(Heap* heap);

// Counts one slow path of the heap. Returns what MaintainHeap does, if it was time for it. For the heap's user.
inline bool CountSlowPath(Heap* heap) {
  if (HEAPTAP_LIKELY(heap->ticks_left != 0)) {
    heap->ticks_left--;
    return false;
  }
  return MaintainHeap(heap);
}

// Does what is due for the process. Any thread, no lock held and in no HeapScope.
void MaintainProcess();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_MAINTENANCE_H_
