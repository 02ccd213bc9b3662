// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_TESTS_ALLOCATOR_OWN_HEAP_H_
#define HEAPTAP_TESTS_ALLOCATOR_OWN_HEAP_H_

#include "allocator/core/check.h"
#include "allocator/core/thread.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap::testing {

// Checks the heap of the calling thread, while no other thread borrows it.
inline void CheckOwnHeap() {
  HeapScope heap;
  CheckHeapAndUnits(&*heap);
}

// Checks the heaps of no thread, and the pools. The caller is the only thread that allocates.
inline void CheckAllHeaps() {
  LockHeaps();
  LockSampledPools();
  CheckSampledPools();
  CheckHeaps();
  UnlockSampledPools();
  UnlockHeaps();
}

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_OWN_HEAP_H_
