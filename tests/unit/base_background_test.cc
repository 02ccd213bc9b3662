// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "userspace/base/background.h"

namespace heaptap::base {
namespace {

using ::testing::ElementsAre;

constexpr int kPatience = 60'000;  // milliseconds

// Until `background` has something to hand over.
bool WaitDone(const Background& background) {
  pollfd done = {.fd = background.fd(), .events = POLLIN, .revents = 0};
  return poll(&done, 1, kPatience) == 1;
}

TEST(BackgroundTest, WorksInItsOwnThreadAndReportsInOrder) {
  Background background(Background::Place::kOwnThread);
  absl::Notification may_work;
  std::thread::id worker;
  std::vector<int> reported;
  background.Run(
      [&] {
        may_work.WaitForNotification();
        worker = std::this_thread::get_id();
      },
      [&] { reported.push_back(1); });
  background.Run([] {}, [&] { reported.push_back(2); });
  background.HandleDone();
  EXPECT_THAT(reported, ElementsAre()) << "it is not done";
  EXPECT_EQ(background.size(), 2u);
  may_work.Notify();
  while (background.size() > 0) {
    ASSERT_TRUE(WaitDone(background));
    background.HandleDone();
  }
  EXPECT_THAT(reported, ElementsAre(1, 2));
  EXPECT_NE(worker, std::this_thread::get_id());
}

TEST(BackgroundTest, WhatIsDoneMayBeginMore) {
  Background background(Background::Place::kOwnThread);
  bool is_done = false;
  background.Run([] {}, [&] { background.Run([] {}, [&] { is_done = true; }); });
  while (background.size() > 0) {
    ASSERT_TRUE(WaitDone(background));
    background.HandleDone();
  }
  EXPECT_TRUE(is_done);
}

TEST(BackgroundTest, GivesUpAtItsEnd) {
  std::atomic<bool> is_reported = false;
  std::atomic<int> worked = 0;
  {
    absl::Notification is_working;
    Background background(Background::Place::kOwnThread);
    background.Run(
        [&] {
          worked++;
          is_working.Notify();
        },
        [&] { is_reported = true; });
    is_working.WaitForNotification();
  }
  EXPECT_EQ(worked, 1);
  EXPECT_FALSE(is_reported);
}

TEST(BackgroundTest, ACallerThatHasNothingElseToDoWaits) {
  Background background(Background::Place::kCaller);
  std::vector<int> steps;
  background.Run([&] { steps.push_back(1); }, [&] { steps.push_back(2); });
  EXPECT_THAT(steps, ElementsAre(1, 2));
  EXPECT_EQ(background.size(), 0u);
  EXPECT_LT(background.fd(), 0);
}

}  // namespace
}  // namespace heaptap::base
