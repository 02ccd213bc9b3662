// SPDX-License-Identifier: Apache-2.0
//
// The correction that readers of sampled heap profiles apply, and its inverse.
//
// Readers of heap_v2 (jeprof, pprof) find the number of samples n and their bytes s in a line, and take the line for
// objects of one size x = s/n, each drawn with probability p = 1 - exp(-x/R): they show n/p objects and s/p bytes. That
// is wrong where sizes are mixed. The estimates here are right for any mix, so a writer puts such n and s into the line
// that the reader arrives at the estimates: x is the same on both sides, so n = objects * p and s = bytes * p.
// (jemalloc 5.3 does the same; its option prof_unbias.) That they are whole numbers costs at most half a sample, always
// less than the error of sampling itself.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_PROFILE_UNBIAS_H_
#define HEAPTAP_USERSPACE_PROFILE_UNBIAS_H_

#include <cstdint>

namespace heaptap::profile {

// What stands in a line of heap_v2. Both are 0 or neither is: readers divide one by the other.
struct BiasedCount {
  uint64_t objects = 0;
  uint64_t bytes = 0;

  friend bool operator==(const BiasedCount&, const BiasedCount&) = default;
};

struct UnbiasedCount {
  double objects = 0;
  double bytes = 0;
};

// What to write so that a reader shows `objects` and `bytes`, rounded to whole numbers; at least 1 and 1 unless both
// estimates are 0 (or negative, or no numbers), and never so far apart that a reader divides by 0. `period`: mean bytes
// between samples, at least 1.
BiasedCount Bias(double objects, double bytes, uint64_t period);

// What a reader shows.
UnbiasedCount Unbias(const BiasedCount& count, uint64_t period);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_UNBIAS_H_
