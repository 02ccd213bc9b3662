// SPDX-License-Identifier: Apache-2.0
//
// Turns counters of samples into estimates of the program's allocations.
//
// An object of z bytes is sampled with probability p = 1 - exp(-z/R), so a sample stands for 1/p objects and z/p bytes.
// heaptap_count.weighted_objects and .weight are the sums of these terms, which makes them unbiased estimates for any
// mix of sizes and of R. .variance estimates the variance of .weight (bpf/books.h), unbiased too.
#ifndef HEAPTAP_USERSPACE_PROFILE_ESTIMATE_H_
#define HEAPTAP_USERSPACE_PROFILE_ESTIMATE_H_

#include <cstdint>

#include "bpf/books.h"

namespace heaptap::profile {

struct Estimate {
  uint64_t samples = 0;        // number recorded
  uint64_t sampled_bytes = 0;  // their sizes
  double objects = 0;          // estimate of all objects
  double bytes = 0;            // estimate of all bytes
  double variance = 0;         // of `bytes`, in square bytes; 0: every allocation is a sample

  // Whether both estimates are 0.
  bool IsZero() const { return !(objects > 0) && !(bytes > 0); }

  Estimate& operator+=(const Estimate& other);
  friend bool operator==(const Estimate&, const Estimate&) = default;
};

// The nearest whole number. 0 for a negative value or NaN; at most 2^63 - 1024, because readers parse 64 signed bits.
uint64_t ToWhole(double estimate);

// The variance of estimates if only their sums are known: as if all samples had their mean size and weight. The result
// is exact for one size and one R; for mixed ones it is too small by the variance of the weights.
double VarianceOfEqualSamples(const Estimate& estimate);

// Whether the standard error of equal samples is so near to the true one, `deviation`, that it may stand for it.
bool MayStandFor(double equal_deviation, double deviation);

// Whether samples were taken at shorter intervals than `period`, at longer ones. A sample stands for at least the bytes
// of its interval, and for at most these bytes plus its size. A few samples at another interval among many go
// unnoticed.
bool HasFinerSamples(const Estimate& estimate, uint64_t period);
bool HasCoarserSamples(const Estimate& estimate, uint64_t period);

// The estimates of a counter.
Estimate ToEstimate(const heaptap_count& count);

// The estimates of the memory that a tally has allocated and not freed. The two halves may be read at different
// moments; if the freed half is ahead, the difference is 0.
Estimate LiveEstimate(const heaptap_tally& tally);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_ESTIMATE_H_
