// SPDX-License-Identifier: Apache-2.0
//
// A small picture of how the live memory of a process develops while somebody watches.
#ifndef HEAPTAP_USERSPACE_REPORT_TREND_H_
#define HEAPTAP_USERSPACE_REPORT_TREND_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "userspace/base/clock.h"

namespace heaptap::report {

// Not thread-safe.
class Trend {
 public:
  // `now` never goes back.
  void Add(base::Instant now, double live_bytes);
  // The last `width` values, the latest at the right. Without UTF-8, letters stand for heights.
  std::string Picture(size_t width, bool is_utf8) const;

 private:
  std::deque<std::pair<base::Instant, double>> points_;
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_TREND_H_
