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

// Sets whether samples are counted. Called once, before other threads exist.
void StartSampleStatistics(bool wanted);
// Constant afterwards.
extern bool has_sample_statistics;
inline bool HasSampleStatistics() { return has_sample_statistics; }

// Sizes in bytes: the usable size, and the size that the program requested.
void CountSampleAllocated(size_t usable, size_t requested);
void CountSampleFreed(size_t usable, size_t requested);

// prof.stats.*
struct SampleStatistics {
  uint64_t requested;  // sum of the requested sizes, bytes
  uint64_t count;      // of samples
};
struct LiveAndAccumulated {
  SampleStatistics live;
  SampleStatistics accumulated;
};
// `size_class`: a ClassNumber (size_class.h), which may also be one of a large class.
LiveAndAccumulated ReadSampleStatistics(unsigned size_class);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_STATISTICS_H_
