// SPDX-License-Identifier: Apache-2.0
//
// How the live memory of processes develops while somebody looks: growth per minute, and a small picture.
#ifndef HEAPTAP_USERSPACE_REPORT_TREND_H_
#define HEAPTAP_USERSPACE_REPORT_TREND_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/base/clock.h"

namespace heaptap::report {

// Not thread-safe.
class Trend {
 public:
  // `now` never goes back.
  void Add(base::Instant now, double live_bytes);
  // Bytes per minute over the last kWindow; 0 with less than a second of history.
  double GrowthPerMinute() const;
  // The last `width` values, the latest at the right. ASCII: with letters for heights.
  std::string Picture(size_t width, bool is_utf8) const;

  static constexpr absl::Duration kWindow = absl::Minutes(1);

 private:
  std::deque<std::pair<base::Instant, double>> points_;
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_TREND_H_
