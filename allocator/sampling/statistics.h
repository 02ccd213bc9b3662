// SPDX-License-Identifier: Apache-2.0
//
// prof_stats: counts of samples by size class.
//
// Any thread. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_STATISTICS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_STATISTICS_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// Whether samples are counted. Once, before other threads.
void StartSampleStatistics(bool wanted);
bool HasSampleStatistics();

// Sizes in bytes: usable, and as the program has asked for.
void CountSampleAllocated(size_t usable, size_t requested);
void CountSampleFreed(size_t usable, size_t requested);

// prof.stats.*: what prof_stats counts, for small class `size_class` or, from kSmallClasses on, the larger classes in
// order.
struct SampleStatistics {
  uint64_t requested;  // sum of the requested sizes, bytes
  uint64_t count;
};
struct LiveAndAccumulated {
  SampleStatistics live;
  SampleStatistics accumulated;
};
LiveAndAccumulated ReadSampleStatistics(unsigned size_class);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_STATISTICS_H_
