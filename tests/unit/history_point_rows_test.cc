// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/history/point_rows.h"

namespace heaptap::history {
namespace {

TEST(PointRowsTest, RoundTrip) {
  const Rows rows = {{0, {5, 1, 1}}, {3, {1 << 20, 77, 2}}, {1000, {uint64_t{1} << 62, 1, 1}}};
  Rows read = {{9, {1, 1, 1}}};
  ASSERT_TRUE(Apply(/*is_whole=*/true, EncodeRows(rows), read).ok());
  EXPECT_EQ(read, rows);
}

TEST(PointRowsTest, ChangesAreSmallAndExact) {
  Rows before;
  for (uint64_t i = 1; i <= 200; i++) before[i] = {i * 1000, i, 1};
  Rows after = before;
  after.erase(1);
  after[7].live_bytes = 5;
  after[201] = {1, 1, 1};
  const std::string change = EncodeChange(before, after);
  EXPECT_LT(change.size(), 20u);
  ASSERT_TRUE(Apply(/*is_whole=*/false, change, before).ok());
  EXPECT_EQ(before, after);
  EXPECT_EQ(EncodeChange(after, after), "");
}

TEST(PointRowsTest, RefusesHostileBytes) {
  Rows rows;
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(true, "\x80", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(true, "\x01\x02\x03", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(true, std::string(20, '\x80') + "\x01\x01\x01\x01", rows)));
}

}  // namespace
}  // namespace heaptap::history
