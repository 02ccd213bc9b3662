// SPDX-License-Identifier: Apache-2.0
//
// prof_stats: counts of samples by size class (profiling.h, ReadSampleStatistics).
//
// Any thread. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_STATISTICS_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_STATISTICS_H_

#include <stddef.h>

namespace heaptap {

// Sizes in bytes: usable, and as the program has asked for.
void CountSampleAllocated(size_t usable, size_t requested);
void CountSampleFreed(size_t usable, size_t requested);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_STATISTICS_H_
