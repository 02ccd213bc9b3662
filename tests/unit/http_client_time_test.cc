// SPDX-License-Identifier: Apache-2.0
//
// What answers cost the users who ask.
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/bounds.h"
#include "userspace/http/client_time.h"

namespace heaptap::http {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kUser = 1234;
constexpr absl::Duration kInstant = absl::Milliseconds(1);

class ClientTimeTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  ClientTime time_;
};

TEST_F(ClientTimeTest, WhoHasNoTimeIsToldWhen) {
  EXPECT_TRUE(time_.Check(kUser).ok());
  time_.Charge(kUser, ClientTime::kBurst + ClientTime::kShare * absl::Seconds(3) - absl::Microseconds(1));
  const uint64_t before = base::CountsBeyondBounds().at("client_time");
  const absl::Status status = time_.Check(kUser);
  EXPECT_EQ(base::CountsBeyondBounds().at("client_time"), before + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "user 1234 has used up the time for profiles; try again in 3 seconds");
  EXPECT_EQ(SecondsToWait(status), 3);
  EXPECT_EQ(SecondsToWait(absl::ResourceExhaustedError("another one")), std::nullopt);
  clock_.Advance(absl::Seconds(2));
  EXPECT_THAT(std::string(time_.Check(kUser).message()), HasSubstr("in 1 second"));
  clock_.Advance(absl::Seconds(1));
  EXPECT_TRUE(time_.Check(kUser).ok());
}

TEST_F(ClientTimeTest, OthersHaveTime) {
  time_.Charge(std::nullopt, 2 * ClientTime::kBurst);
  time_.Charge(0, 2 * ClientTime::kBurst);
  EXPECT_TRUE(time_.Check(kUser).ok());
  EXPECT_TRUE(time_.Check(0).ok()) << "root has no account";
  EXPECT_THAT(std::string(time_.Check(std::nullopt).message()), HasSubstr("unknown users have used up"));
}

TEST_F(ClientTimeTest, TheThreadThatAnswersWorksForWhoAsks) {
  clock_.Work(absl::Hours(1));  // for others
  {
    Asker asker(time_, kUser);
    clock_.Work(ClientTime::kBurst - kInstant);
    EXPECT_TRUE(asker.Pay().ok());
    clock_.Work(kInstant);
    EXPECT_TRUE(absl::IsResourceExhausted(asker.Pay()));
  }
  clock_.Advance(kInstant);
  EXPECT_TRUE(time_.Check(kUser).ok());
  {
    Asker asker(time_, kUser);
    clock_.Work(kInstant);
  }
  EXPECT_FALSE(time_.Check(kUser).ok()) << "an answer that is sent is paid for";
}

TEST_F(ClientTimeTest, WhatOthersCauseIsNotCharged) {
  Asker asker(time_, kUser);
  clock_.Work(ClientTime::kBurst);
  asker.ChargeAtMost(kInstant);
  EXPECT_TRUE(asker.Pay().ok());
  asker.Charge(ClientTime::kBurst - kInstant);
  EXPECT_FALSE(asker.Pay().ok()) << "another thread worked for it";
}

}  // namespace
}  // namespace heaptap::http
