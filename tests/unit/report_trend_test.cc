// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/base/clock.h"
#include "userspace/report/trend.h"

namespace heaptap::report {
namespace {

base::Instant At(double seconds) { return base::Instant() + absl::Seconds(seconds); }

TEST(TrendTest, NothingIsKnownAtFirst) {
  Trend trend;
  EXPECT_EQ(trend.GrowthPerMinute(), 0);
  EXPECT_EQ(trend.Picture(10, true), "");
  trend.Add(At(0), 100);
  trend.Add(At(0.5), 1e9);
  EXPECT_EQ(trend.GrowthPerMinute(), 0) << "too short to say anything";
}

TEST(TrendTest, GrowthOfTheLastMinute) {
  Trend trend;
  for (int second = 0; second <= 200; second += 10) trend.Add(At(second), second < 100 ? 0 : (second - 100) * 5.0);
  EXPECT_DOUBLE_EQ(trend.GrowthPerMinute(), 300);
  trend.Add(At(210), 0);
  EXPECT_LT(trend.GrowthPerMinute(), 0);
}

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
