// SPDX-License-Identifier: Apache-2.0
//
// How fast the live memory of the running processes grows, from the history.
//
// A rate is the change from the first point of a process in the last kPeriod to its latest one. Its standard error is
// the standard error of the difference between the two points (report/changes.h). A change within seconds would be
// mostly noise.
#ifndef HEAPTAP_USERSPACE_API_GROWTH_RATES_H_
#define HEAPTAP_USERSPACE_API_GROWTH_RATES_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heaptap::api {

struct GrowthRate {
  // The period of a rate. A younger process has a rate since its first point.
  static constexpr absl::Duration kPeriod = absl::Minutes(10);
  // Over a shorter period, the start of a program would pass for growth.
  static constexpr absl::Duration kLeastPeriod = absl::Seconds(30);

  double bytes_per_minute = 0;
  double error = 0;  // of bytes_per_minute
  absl::Duration period = {};
};

// By process id. A process whose points span less than kLeastPeriod has no rate.
using GrowthRates = absl::flat_hash_map<uint64_t, GrowthRate>;

// Errors: see history/timeline.h. Thread-safe. Takes some hundredths of a second for a hundred processes.
absl::StatusOr<GrowthRates> ReadGrowthRates(const std::string& file, absl::Time now);

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_GROWTH_RATES_H_
