// SPDX-License-Identifier: Apache-2.0
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "userspace/base/accounts.h"
#include "userspace/base/clock.h"

namespace heaptap::base {
namespace {

constexpr double kShare = 0.1;
constexpr absl::Duration kBurst = absl::Milliseconds(300);

SubordinateIds Ids() {
  return SubordinateIds("1000:100000:10\n", [](const std::string&) { return std::nullopt; });
}

TEST(Accounts, AGreedyUserWaits) {
  Accounts accounts(Ids(), kShare, kBurst);
  const Instant begin = Instant() + absl::Hours(24);
  EXPECT_TRUE(accounts.HasTime(1000, begin));
  accounts.Charge(1000, 2 * kBurst, begin);
  EXPECT_FALSE(accounts.HasTime(1000, begin));
  EXPECT_EQ(accounts.TimeUntil(1000, begin), kBurst / kShare + absl::Nanoseconds(1));
  EXPECT_EQ(accounts.TimeUntil(1001, begin), absl::ZeroDuration());
  EXPECT_TRUE(accounts.HasTime(1001, begin)) << "another user does not wait";
  // The debt is paid from the share.
  const absl::Duration debt = kBurst / kShare;
  EXPECT_FALSE(accounts.HasTime(1000, begin + debt - absl::Milliseconds(1)));
  EXPECT_TRUE(accounts.HasTime(1000, begin + debt + absl::Milliseconds(1)));
}

TEST(Accounts, AnAccountHoldsABurstAtMost) {
  Accounts accounts(Ids(), kShare, kBurst);
  const Instant begin = Instant() + absl::Hours(24);
  accounts.Charge(1000, kBurst / 2, begin);
  const Instant later = begin + absl::Hours(1);
  accounts.Charge(1000, kBurst, later);
  EXPECT_FALSE(accounts.HasTime(1000, later));
}

TEST(Accounts, SubordinateIdsShareTheAccountOfTheirUser) {
  Accounts accounts(Ids(), kShare, kBurst);
  const Instant now = Instant() + absl::Hours(24);
  accounts.Charge(100003, 2 * kBurst, now);
  EXPECT_FALSE(accounts.HasTime(1000, now));
  EXPECT_FALSE(accounts.HasTime(100009, now));
  EXPECT_TRUE(accounts.HasTime(100010, now));
}

TEST(Accounts, AClockThatGoesBackTakesNothing) {
  Accounts accounts(Ids(), kShare, kBurst);
  const Instant begin = Instant() + absl::Hours(24);
  EXPECT_TRUE(accounts.HasTime(1000, begin));
  EXPECT_TRUE(accounts.HasTime(1000, begin - absl::Hours(1)));
}

TEST(Accounts, RootAndUnknownUsers) {
  Accounts accounts(Ids(), kShare, kBurst);
  const Instant now = Instant() + absl::Hours(24);
  accounts.Charge(0, absl::Hours(1), now);
  EXPECT_TRUE(accounts.HasTime(0, now));
  accounts.Charge(std::nullopt, absl::Hours(1), now);
  EXPECT_FALSE(accounts.HasTime(std::nullopt, now));
  // Any number of users: closed accounts were full.
  for (uid_t user = 2000; user < 5000; user++) accounts.Charge(user, absl::Milliseconds(1), now + absl::Seconds(user));
  EXPECT_FALSE(accounts.HasTime(std::nullopt, now + absl::Seconds(5000)));
}

}  // namespace
}  // namespace heaptap::base
