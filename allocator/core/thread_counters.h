// SPDX-License-Identifier: Apache-2.0
//
// Counts of what a thread has allocated and freed, as of its slow paths (thread_totals.h). Each thread has its own, and
// only that thread may use it.
#ifndef HEAPTAP_ALLOCATOR_CORE_THREAD_COUNTERS_H_
#define HEAPTAP_ALLOCATOR_CORE_THREAD_COUNTERS_H_

#include <stdint.h>

namespace heaptap {

// Bytes of usable size.
struct ThreadCounters {
  uint64_t allocated;
  uint64_t deallocated;
  int64_t peak;
  int64_t peak_base;      // allocated - deallocated at the last reset
  int64_t peak_distance;  // how far Net() must exceed `peak` before a new peak is recorded; 0: no peak is

  int64_t Net() const { return static_cast<int64_t>(allocated - deallocated); }
  bool PeakIsDue() const { return peak_distance != 0 && Net() > peak + peak_distance; }
  // `distance`: sets peak_distance, if it is above the minimum. REQUIRES: `deallocated` is exact.
  void RecordPeak(uint64_t distance);
};

extern constinit thread_local ThreadCounters thread_counters;

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_THREAD_COUNTERS_H_
