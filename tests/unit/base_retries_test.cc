// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "userspace/base/retries.h"

namespace heaptap::base {
namespace {

constexpr RetryPauses kPauses = {.first = absl::Seconds(10), .most = absl::Seconds(35)};

TEST(Retries, ThePausesDoubleUpToABound) {
  Retries<int> retries(kPauses);
  Instant now = Instant::FromNanoseconds(1);
  EXPECT_TRUE(retries.IsDue(7, now)) << "it has never failed";
  for (const int64_t seconds : {10, 20, 35, 35}) {
    EXPECT_EQ(retries.Fail(7, now), absl::Seconds(seconds));
    EXPECT_FALSE(retries.IsDue(7, now + absl::Seconds(seconds) - absl::Nanoseconds(1)));
    EXPECT_TRUE(retries.IsDue(8, now)) << "another one";
    now = now + absl::Seconds(seconds);
    EXPECT_TRUE(retries.IsDue(7, now));
  }
  EXPECT_EQ(retries.failures(7), 4);
}

TEST(Retries, ASuccessBeginsAnew) {
  Retries<int> retries(kPauses);
  const Instant now;
  retries.Fail(7, now);
  retries.Fail(7, now);
  retries.Succeed(7);
  EXPECT_TRUE(retries.empty());
  EXPECT_TRUE(retries.IsDue(7, now));
  EXPECT_EQ(retries.Fail(7, now), kPauses.first);
}

TEST(Retries, AreBoundedInNumber) {
  Retries<int> retries(kPauses);
  const Instant now;
  for (int key = 0; key < 100'000; key++) retries.Fail(key, now);
  int kept = 0;
  for (int key = 0; key < 100'000; key++) kept += retries.failures(key);
  EXPECT_GT(kept, 0);
  EXPECT_LE(kept, 4096);
}

}  // namespace
}  // namespace heaptap::base
