// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "userspace/service/bounded_work.h"

namespace heaptap::service {
namespace {

TEST(BoundedWork, RunsOneAfterTheOther) {
  BoundedWork bounded;
  auto sum = std::make_shared<int>(0);
  for (int i = 0; i < 100; i++) EXPECT_TRUE(bounded.Run([sum] { ++*sum; }, absl::InfiniteDuration()));
  EXPECT_EQ(*sum, 100);
  EXPECT_EQ(bounded.abandoned(), 0);
}

TEST(BoundedWork, GivesUpWhatDoesNotEndAndGoesOn) {
  BoundedWork bounded;
  auto release = std::make_shared<absl::Notification>();
  EXPECT_FALSE(bounded.Run([release] { release->WaitForNotification(); }, absl::Milliseconds(10)));
  EXPECT_EQ(bounded.abandoned(), 1);
  auto ran = std::make_shared<bool>(false);
  EXPECT_TRUE(bounded.Run([ran] { *ran = true; }, absl::InfiniteDuration()));
  EXPECT_TRUE(*ran);
  release->Notify();
  while (bounded.abandoned() != 0) absl::SleepFor(absl::Milliseconds(1));
}

TEST(BoundedWork, StopsTryingWhenTooManyWait) {
  BoundedWork bounded;
  auto release = std::make_shared<absl::Notification>();
  for (int i = 0; i < BoundedWork::kMaxAbandoned; i++) {
    EXPECT_FALSE(bounded.Run([release] { release->WaitForNotification(); }, absl::Milliseconds(1)));
  }
  EXPECT_FALSE(bounded.Run([] {}, absl::InfiniteDuration()));
  release->Notify();
  while (bounded.abandoned() != 0) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(bounded.Run([] {}, absl::InfiniteDuration()));
}

}  // namespace
}  // namespace heaptap::service
