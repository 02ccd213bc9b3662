// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/measure.h"

#include <algorithm>
#include <cmath>

namespace heaptap::report {

Measure& Measure::operator+=(const Measure& other) {
  bytes += other.bytes;
  objects += other.objects;
  samples += other.samples;
  variance += other.variance;
  return *this;
}

double Measure::Error() const { return std::sqrt(variance); }

Measure ToMeasure(const profile::Estimate& estimate, uint64_t period) {
  Measure measure = {.bytes = estimate.bytes, .objects = estimate.objects, .samples = estimate.samples};
  if (estimate.samples == 0 || period <= 1) return measure;
  const auto samples = static_cast<double>(estimate.samples);
  const double weight = std::fabs(estimate.bytes) / samples;
  const double size = static_cast<double>(estimate.sampled_bytes) / samples;
  // The rounded numbers of a dump can make the weight a little smaller than the size.
  measure.variance = samples * weight * std::max(weight - size, 0.0);
  return measure;
}

Measure FreedOf(const Measure& allocated, const Measure& live, const Measure& before) {
  const uint64_t seen = allocated.samples + before.samples;
  return {.bytes = std::max(allocated.bytes + before.bytes - live.bytes, 0.0),
          .objects = std::max(allocated.objects + before.objects - live.objects, 0.0),
          .samples = seen > live.samples ? seen - live.samples : 0,
          .variance = std::max(allocated.variance + before.variance - live.variance, 0.0)};
}

Measures& Measures::operator+=(const Measures& other) {
  live += other.live;
  allocated += other.allocated;
  freed += other.freed;
  before += other.before;
  return *this;
}

}  // namespace heaptap::report
