// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread_totals.h"

#include <stdint.h>

#include "allocator/core/thread.h"

namespace heaptap {
namespace {

void SettleAllocationsAndFrees() {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  HeapScope heap;
  heap->SettleAllocations();
  heap->SettleFrees();
}

}  // namespace

uint64_t ReadThreadAllocated() {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  HeapScope heap;
  heap->SettleAllocations();
  return thread_counters.allocated;
}

uint64_t ReadThreadDeallocated() {
  HEAPTAP_ASSERT(IsOutsideSlowPaths());
  HeapScope heap;
  heap->SettleFrees();
  return thread_counters.deallocated;
}

uint64_t* ThreadAllocatedCounter() { return &thread_counters.allocated; }

uint64_t* ThreadDeallocatedCounter() { return &thread_counters.deallocated; }

uint64_t ReadThreadPeak() {
  SettleAllocationsAndFrees();
  thread_counters.RecordPeak(0);
  return static_cast<uint64_t>(thread_counters.peak - thread_counters.peak_base);
}

void ResetThreadPeak() {
  SettleAllocationsAndFrees();
  thread_counters.peak = thread_counters.Net();
  thread_counters.peak_base = thread_counters.peak;
  thread_counters.RecordPeak(0);
}

}  // namespace heaptap
