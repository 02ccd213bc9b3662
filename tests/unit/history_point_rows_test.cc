// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/history/point_rows.h"

namespace heaptap::history {
namespace {

TEST(PointRowsTest, RoundTrip) {
  const Rows rows = {{0, {5, 1, 1, 0}},
                     {3, {1 << 20, 77, 2, 300, 12345}},
                     {4, {1 << 20, 77, 2, 2, 12345}},
                     {1000, {uint64_t{1} << 62, 1, 5, 5}}};
  Rows read = {{9, {1, 1, 1}}};
  ASSERT_TRUE(Apply(kWholePoint | kSamplesPoint, EncodeRows(rows), read).ok());
  EXPECT_EQ(read, rows);
}

TEST(PointRowsTest, ChangesAreSmallAndExact) {
  Rows before;
  for (uint64_t i = 1; i <= 200; i++) {
    before[i] = {i * 1000, i, 1, i};
    before[i].deviation = DeviationOfEqualSamples(before[i]);
  }
  Rows after = before;
  after.erase(1);
  after[7].live_bytes = 5;
  after[201] = {1, 1, 1, 1};
  const std::string change = EncodeChange(before, after);
  EXPECT_LT(change.size(), 20u);
  ASSERT_TRUE(Apply(kSamplesPoint, change, before).ok());
  EXPECT_EQ(before, after);
  EXPECT_EQ(EncodeChange(after, after), "");
}

// One sample of 100 bytes that stands for 1000 bytes, and three of them.
TEST(PointRowsTest, TheErrorOfEqualSamplesNeedsNoRoom) {
  EXPECT_EQ(DeviationOfEqualSamples({1000, 10, 1}), 949u) << "the root of 1000 * (1000 - 100)";
  EXPECT_EQ(DeviationOfEqualSamples({3000, 30, 3}), 1643u);
  EXPECT_EQ(DeviationOfEqualSamples({300, 3, 3}), 0u) << "every object is a sample";
  EXPECT_EQ(DeviationOfEqualSamples({}), 0u);
  EXPECT_EQ(EncodeRows({{1, {3000, 30, 3, 3, 1643}}}).size() + 2, EncodeRows({{1, {3000, 30, 3, 3, 1000}}}).size());
  Held sum = {300, 3, 3, 3, 30};
  sum += {400, 4, 4, 4, 40};
  EXPECT_EQ(sum, (Held{700, 7, 7, 7, 50}));
}

// As heaptap wrote them before it kept the samples that were allocated.
TEST(PointRowsTest, RowsWithoutFlags) {
  Rows rows;
  ASSERT_TRUE(Apply(kWholePoint, "\x01\x05\x02\x01\x02\x07\x01\x01", rows).ok());
  EXPECT_EQ(rows, (Rows{{1, {5, 2, 1, 0, 3}}, {3, {7, 1, 1, 0}}}));
  ASSERT_TRUE(Apply(kSamplesPoint, "\x01\x05\x02\x05\x09", rows).ok());
  EXPECT_EQ(rows, (Rows{{1, {5, 2, 1, 10, 3}}, {3, {7, 1, 1, 0}}}));
}

TEST(PointRowsTest, RefusesHostileBytes) {
  Rows rows;
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(kWholePoint | kSamplesPoint, "\x80", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(kWholePoint | kSamplesPoint, "\x01\x02\x03\x05", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(
      Apply(kWholePoint | kSamplesPoint, std::string(20, '\x80') + "\x01\x01\x01\x01\x01", rows)));
}

}  // namespace
}  // namespace heaptap::history
