// SPDX-License-Identifier: Apache-2.0
//
// The longest round of a loop in the last 10 to 20 seconds. An event may have waited that long. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_DAEMON_PAUSES_H_
#define HEAPTAP_USERSPACE_DAEMON_PAUSES_H_

#include <algorithm>

#include "absl/time/time.h"
#include "userspace/base/clock.h"

namespace heaptap::daemon {

class Pauses {
 public:
  // A round that took from `begin` to `end`, later than the rounds before.
  void Add(base::Instant begin, base::Instant end) {
    Turn(end);
    latest_ = std::max(latest_, end - begin);
  }
  absl::Duration Longest(base::Instant now) {
    Turn(now);
    return std::max(latest_, before_);
  }

 private:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);

  void Turn(base::Instant now) {
    if (now - turned_ < kPeriod) return;
    before_ = now - turned_ < 2 * kPeriod ? latest_ : absl::ZeroDuration();
    latest_ = absl::ZeroDuration();
    turned_ = now;
  }

  base::Instant turned_ = base::Instant::InfinitePast();
  absl::Duration latest_ = {};  // since `turned_`
  absl::Duration before_ = {};  // in the period before
};

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DAEMON_PAUSES_H_
