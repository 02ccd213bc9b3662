// SPDX-License-Identifier: Apache-2.0
//
// The correction that readers of sampled heap profiles apply, and its inverse.
//
// A line of heap_v2 has the number of samples n and their bytes s. Readers (jeprof, pprof) assume that all its objects
// have the size x = s/n and were sampled with probability p = 1 - exp(-x/R), and show n/p objects and s/p bytes. For
// mixed sizes that is wrong. The estimates here are right for any mix, so a writer chooses n and s such that the reader
// arrives at the estimates: x is the same on both sides, so n = objects * p and s = bytes * p. (jemalloc 5.3 does the
// same with prof_unbias.) Rounding n and s costs at most half a sample, always less than the error of sampling.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_PROFILE_UNBIAS_H_
#define HEAPTAP_USERSPACE_PROFILE_UNBIAS_H_

#include <cstdint>

#include "userspace/profile/estimate.h"

namespace heaptap::profile {

// The numbers of a line of heap_v2. Both are 0 or none is, because readers divide one by the other.
struct BiasedCount {
  uint64_t objects = 0;
  uint64_t bytes = 0;

  friend bool operator==(const BiasedCount&, const BiasedCount&) = default;
};

struct UnbiasedCount {
  double objects = 0;
  double bytes = 0;
};

// The numbers with which a reader shows `objects` and `bytes`. At least 1 and 1, unless both estimates are 0, negative
// or NaN; and never so far apart that a reader divides by 0. `period`: mean bytes between samples, at least 1.
BiasedCount Bias(double objects, double bytes, uint64_t period);

// The longest period at which objects of this mean size and number have at least as many samples as the estimate has.
// Infinite: any. With `period` set to this or less, Bias() rounds away less than half a sample.
double LongestPeriod(const Estimate& estimate);

// The estimates that a reader shows.
UnbiasedCount Unbias(const BiasedCount& count, uint64_t period);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_UNBIAS_H_
