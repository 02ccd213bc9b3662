// SPDX-License-Identifier: Apache-2.0
#include "userspace/profile/estimate.h"

#include <algorithm>
#include <cmath>

namespace heaptap::profile {
namespace {

// Leaves room for the rounding of weights in the kernel.
constexpr double kEnough = 0.99;

// A counter may be read in the middle of a sample: its numbers may include one sample too many or too few.
constexpr uint64_t kMoment = 1;

uint64_t Difference(uint64_t more, uint64_t less) { return more > less ? more - less : 0; }

}  // namespace

Estimate& Estimate::operator+=(const Estimate& other) {
  samples += other.samples;
  sampled_bytes += other.sampled_bytes;
  objects += other.objects;
  bytes += other.bytes;
  variance += other.variance;
  return *this;
}

uint64_t ToWhole(double estimate) {
  // The largest double below 2^63.
  constexpr double kMost = 9223372036854774784.0;
  if (!(estimate > 0)) return 0;
  return static_cast<uint64_t>(std::llround(std::min(estimate, kMost)));
}

double VarianceOfEqualSamples(const Estimate& estimate) {
  if (estimate.samples == 0) return 0;
  const auto samples = static_cast<double>(estimate.samples);
  const double weight = std::fabs(estimate.bytes) / samples;
  const double size = static_cast<double>(estimate.sampled_bytes) / samples;
  // Rounded numbers can make the weight a little smaller than the size.
  return samples * weight * std::max(weight - size, 0.0);
}

bool MayStandFor(double equal_deviation, double deviation) {
  constexpr double kMostDifference = 0.1;  // as a share of the deviation
  return std::fabs(equal_deviation - deviation) <= kMostDifference * deviation;
}

bool HasFinerSamples(const Estimate& estimate, uint64_t period) {
  if (estimate.samples <= kMoment || period <= 1) return false;
  return estimate.bytes < kEnough * static_cast<double>(estimate.samples - kMoment) * static_cast<double>(period);
}

bool HasCoarserSamples(const Estimate& estimate, uint64_t period) {
  const double most = static_cast<double>(estimate.samples + kMoment) * static_cast<double>(period) +
                      static_cast<double>(estimate.sampled_bytes);
  return estimate.samples > 0 && kEnough * estimate.bytes > most;
}

Estimate ToEstimate(const heaptap_count& count) {
  constexpr double kOne = uint64_t{1} << HEAPTAP_OBJECT_FRACTION_BITS;
  return {.samples = count.objects,
          .sampled_bytes = count.bytes,
          .objects = static_cast<double>(count.weighted_objects) / kOne,
          .bytes = static_cast<double>(count.weight),
          .variance = std::ldexp(static_cast<double>(count.variance), HEAPTAP_VARIANCE_UNIT_BITS)};
}

Estimate LiveEstimate(const heaptap_tally& tally) {
  const heaptap_count& in = tally.allocated;
  const heaptap_count& out = tally.freed;
  heaptap_count live = {.objects = Difference(in.objects, out.objects),
                        .bytes = Difference(in.bytes, out.bytes),
                        .weight = Difference(in.weight, out.weight),
                        .weighted_objects = Difference(in.weighted_objects, out.weighted_objects),
                        .variance = Difference(in.variance, out.variance)};
  // Without live samples the estimates are 0, even if the other differences are not.
  if (live.objects == 0) return {};
  return ToEstimate(live);
}

}  // namespace heaptap::profile
