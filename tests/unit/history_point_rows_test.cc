// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/history/point_rows.h"

namespace heaptap::history {
namespace {

TEST(PointRowsTest, RoundTrip) {
  const Rows rows = {{0, {5, 1, 1, 0}}, {3, {1 << 20, 77, 2, 300}}, {1000, {uint64_t{1} << 62, 1, 5, 5}}};
  Rows read = {{9, {1, 1, 1}}};
  ASSERT_TRUE(Apply(kWholePoint | kFreedPoint, EncodeRows(rows), read).ok());
  EXPECT_EQ(read, rows);
}

TEST(PointRowsTest, ChangesAreSmallAndExact) {
  Rows before;
  for (uint64_t i = 1; i <= 200; i++) before[i] = {i * 1000, i, 1, i};
  Rows after = before;
  after.erase(1);
  after[7].live_bytes = 5;
  after[201] = {1, 1, 1, 1};
  const std::string change = EncodeChange(before, after);
  EXPECT_LT(change.size(), 20u);
  ASSERT_TRUE(Apply(kFreedPoint, change, before).ok());
  EXPECT_EQ(before, after);
  EXPECT_EQ(EncodeChange(after, after), "");
}

// As heaptap wrote them before it kept the samples that were allocated.
TEST(PointRowsTest, RowsOfFourNumbers) {
  Rows rows;
  ASSERT_TRUE(Apply(kWholePoint, "\x01\x05\x02\x01\x02\x07\x01\x01", rows).ok());
  EXPECT_EQ(rows, (Rows{{1, {5, 2, 1, 0}}, {3, {7, 1, 1, 0}}}));
  ASSERT_TRUE(Apply(kFreedPoint, "\x01\x05\x02\x03\x09", rows).ok());
  EXPECT_EQ(rows, (Rows{{1, {5, 2, 1, 10}}, {3, {7, 1, 1, 0}}}));
}

TEST(PointRowsTest, RefusesHostileBytes) {
  Rows rows;
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(kWholePoint | kFreedPoint, "\x80", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(kWholePoint | kFreedPoint, "\x01\x02\x03\x05", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Apply(kWholePoint | kFreedPoint, std::string(20, '\x80') + "\x01\x01\x01\x01\x01", rows)));
}

}  // namespace
}  // namespace heaptap::history
