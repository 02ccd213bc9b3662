// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "userspace/base/clock.h"
#include "userspace/daemon/pauses.h"

namespace heaptap::daemon {
namespace {

base::Instant At(double seconds) { return base::Instant() + absl::Seconds(seconds); }

TEST(PausesTest, TheLongestRoundCountsForTenToTwentySeconds) {
  Pauses pauses;
  EXPECT_EQ(pauses.Longest(At(0)), absl::ZeroDuration());
  pauses.Add(At(1), At(1.5));
  pauses.Add(At(2), At(2.1));
  EXPECT_EQ(pauses.Longest(At(3)), absl::Seconds(0.5));
  EXPECT_EQ(pauses.Longest(At(10.5)), absl::Seconds(0.5));
  pauses.Add(At(11), At(11.2));
  EXPECT_EQ(pauses.Longest(At(19)), absl::Seconds(0.5));
  EXPECT_EQ(pauses.Longest(At(21)), At(11.2) - At(11));
  EXPECT_EQ(pauses.Longest(At(60)), absl::ZeroDuration());
}

}  // namespace
}  // namespace heaptap::daemon
