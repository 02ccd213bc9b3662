// SPDX-License-Identifier: Apache-2.0
//
// From counters of samples to estimates of what the program allocated.
//
// A sample of an object of z bytes, drawn with probability p = 1 - exp(-z/R), stands for 1/p objects and z/p bytes:
// those are the terms of heaptap_count.weighted_objects and .weight, so their sums are unbiased estimates whatever mix
// of sizes they add up.
#ifndef HEAPTAP_USERSPACE_PROFILE_ESTIMATE_H_
#define HEAPTAP_USERSPACE_PROFILE_ESTIMATE_H_

#include <cstdint>

#include "bpf/books.h"

namespace heaptap::profile {

struct Estimate {
  uint64_t samples = 0;        // as recorded
  uint64_t sampled_bytes = 0;  // as recorded
  double objects = 0;          // estimate of all
  double bytes = 0;            // estimate of all

  // Nothing is estimated to be there.
  bool IsZero() const { return !(objects > 0) && !(bytes > 0); }

  Estimate& operator+=(const Estimate& other);
  friend bool operator==(const Estimate&, const Estimate&) = default;
};

// The nearest whole number; 0 for what is negative or no number, 2^63 - 1024 for what is more than that: readers parse
// 64 signed bits.
uint64_t ToWhole(double estimate);

// The estimates of a counter.
Estimate ToEstimate(const heaptap_count& count);

// The estimates of what a tally has allocated and not freed. The two halves are not read at one moment; where the
// second is ahead of the first the difference is 0.
Estimate LiveEstimate(const heaptap_tally& tally);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_ESTIMATE_H_
