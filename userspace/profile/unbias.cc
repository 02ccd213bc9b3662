// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/unbias.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heaptap::profile {
namespace {

// The probability that an object of `size` bytes is a sample.
double Probability(double size, uint64_t period) {
  // expm1: for sizes far below the period, 1 - exp() would lose half of the digits.
  return -std::expm1(-size / static_cast<double>(std::max<uint64_t>(period, 1)));
}

// Readers divide by 1 - exp(-s/n/R), which may be 0 if s/n/R is less than this.
constexpr double kSmallestRatio = 0x1p-50;

// Leaves room for kSmallestRatio times any period.
constexpr double kMostObjects = 0x1p49;

// The share of its samples that an estimate needs. It leaves room for the rounding of weights; where every object is a
// sample, no period would be short enough for all of them.
constexpr double kNeededShare = 0.99;

// `estimate`, but 0 if it is negative or NaN.
double Finite(double estimate) { return estimate > 0 ? std::min(estimate, std::numeric_limits<double>::max()) : 0; }

}  // namespace

BiasedCount Bias(double objects, double bytes, uint64_t period) {
  objects = Finite(objects);
  bytes = Finite(bytes);
  if (objects == 0 && bytes == 0) return {};
  double probability = objects == 0 || bytes == 0 ? 1 : Probability(bytes / objects, period);
  double biased_objects = std::clamp(std::round(objects * probability), 1.0, kMostObjects);
  double smallest_bytes = biased_objects * static_cast<double>(period) * kSmallestRatio;
  double biased_bytes = std::max({bytes * probability, smallest_bytes, 1.0});
  return {.objects = ToWhole(biased_objects), .bytes = ToWhole(biased_bytes)};
}

double LongestPeriod(const Estimate& estimate) {
  if (estimate.samples == 0 || !(estimate.objects > 0) || !(estimate.bytes > 0)) {
    return std::numeric_limits<double>::infinity();
  }
  const double probability = kNeededShare * static_cast<double>(estimate.samples) / estimate.objects;
  const double longest = -(estimate.bytes / estimate.objects) / std::log1p(-std::min(probability, kNeededShare));
  // Not a number: the estimates are infinite.
  return longest > 0 ? longest : std::numeric_limits<double>::infinity();
}

UnbiasedCount Unbias(const BiasedCount& count, uint64_t period) {
  if (count.objects == 0) return {.objects = 0, .bytes = static_cast<double>(count.bytes)};
  double objects = static_cast<double>(count.objects);
  double bytes = static_cast<double>(count.bytes);
  double probability = Probability(bytes / objects, period);
  return {.objects = objects / probability, .bytes = bytes / probability};
}

}  // namespace heaptap::profile
