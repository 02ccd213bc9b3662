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

Measure ToMeasure(const profile::Estimate& estimate) {
  return {
      .bytes = estimate.bytes, .objects = estimate.objects, .samples = estimate.samples, .variance = estimate.variance};
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
