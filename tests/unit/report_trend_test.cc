// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/base/clock.h"
#include "userspace/report/trend.h"

namespace heaptap::report {
namespace {

base::Instant At(double seconds) { return base::Instant() + absl::Seconds(seconds); }

TEST(TrendTest, NothingIsKnownAtFirst) { EXPECT_EQ(Trend().Picture(10, true), ""); }

TEST(TrendTest, PictureOfTheLatestValues) {
  Trend trend;
  for (int i = 0; i < 500; i++) trend.Add(At(i), i);
  EXPECT_EQ(trend.Picture(0, false), "");
  EXPECT_EQ(trend.Picture(3, false), "###");
  EXPECT_EQ(trend.Picture(1000, false).size(), 120u);
  trend.Add(At(501), 0);
  trend.Add(At(502), 260);
  EXPECT_EQ(trend.Picture(3, false), "#_+");
  EXPECT_EQ(trend.Picture(2, true), "▁█");
}

}  // namespace
}  // namespace heaptap::report
