// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_TESTS_ALLOCATOR_OWN_HEAP_H_
#define HEAPTAP_TESTS_ALLOCATOR_OWN_HEAP_H_

#include "allocator/core/check.h"
#include "allocator/core/thread.h"

namespace heaptap::testing {

// Checks the heap of the calling thread, while no other thread borrows it.
inline void CheckOwnHeap() {
  HeapScope heap;
  CheckHeapAndUnits(&*heap);
}

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_OWN_HEAP_H_
