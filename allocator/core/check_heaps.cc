// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>

#include <atomic>

#include "allocator/core/arena.h"
#include "allocator/core/check.h"
#include "allocator/core/heap_list.h"
#include "allocator/core/thread.h"

#ifdef HEAPTAP_DEBUG
namespace heaptap {

void CheckHeaps() {
  HEAPTAP_ASSERT(heaps_mutex.IsMine() || IsOnlyThread());
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

}  // namespace heaptap
#endif
