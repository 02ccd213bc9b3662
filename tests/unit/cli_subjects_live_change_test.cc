// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "gtest/gtest.h"
#include "userspace/cli/subjects/live_change.h"
#include "userspace/report/text.h"

namespace heaptap::cli {
namespace {

using history::Held;
using history::Timeline;

// Two points of one call path of a sampled process.
Timeline TwoPoints(const Held& before, const Held& after) {
  Timeline timeline = {
      .points = {{.pid = 1, .lg_sample = 10}, {.pid = 1, .lg_sample = 10}},
      .paths = {{.id = 5, .frames = {{.source = {.function = "f"}, .library = "/bin/x", .offset = 7}}}}};
  timeline.points[0].rows[5] = before;
  timeline.points[1].rows[5] = after;
  return timeline;
}

// A cache: all of its samples are new.
TEST(LiveChange, OfOtherSamplesMayBeNoise) {
  const Timeline timeline =
      TwoPoints({.live_bytes = 10000, .live_objects = 10, .samples = 10, .allocated_samples = 10, .deviation = 300},
                {.live_bytes = 10500, .live_objects = 10, .samples = 10, .allocated_samples = 20, .deviation = 400});
  const LiveChange change = FindLiveChange(timeline, 0, 1);
  EXPECT_EQ(change.total.bytes, 500);
  EXPECT_EQ(change.total.Error(), 500);
  EXPECT_TRUE(report::IsNoise(change.total));
  ASSERT_EQ(change.measures.size(), 1u);
  EXPECT_EQ(change.measures[0].live.samples, 20u);
  EXPECT_EQ(change.symbols.size(), 2u) << "the path, and the row of all others";
  EXPECT_EQ(FindLive(timeline, 1).bytes, 10500);
  EXPECT_EQ(FindLive(timeline, 1).Error(), 400);
}

TEST(LiveChange, SamplesOfBothPointsAddNothing) {
  const LiveChange change = FindLiveChange(
      TwoPoints({.live_bytes = 10000, .live_objects = 10, .samples = 10, .allocated_samples = 10, .deviation = 300},
                {.live_bytes = 30000, .live_objects = 20, .samples = 20, .allocated_samples = 20, .deviation = 500}),
      0, 1);
  EXPECT_EQ(change.total.bytes, 20000);
  EXPECT_EQ(change.total.samples, 10u);
  EXPECT_EQ(change.total.Error(), 400) << "of the new ones";
  EXPECT_FALSE(report::IsNoise(change.total));
}

// What shrank is the change from the later point to the earlier one.
TEST(LiveChange, TheEarlierPointMayBeTheLargerOne) {
  const Timeline timeline = TwoPoints({.live_bytes = 3000, .live_objects = 3}, {.live_bytes = 1000, .live_objects = 1});
  EXPECT_EQ(FindLiveChange(timeline, 0, 1).total.bytes, -2000);
  EXPECT_EQ(FindLiveChange(timeline, 0, 1).total.Error(), 0);
}

}  // namespace
}  // namespace heaptap::cli
