// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/crowded_processor.h"
#include "userspace/base/clock.h"
#include "userspace/crews/user_threads.h"
#include "userspace/process/proc_files.h"

namespace heaptap::worker {
namespace {

using ::testing::ElementsAre;

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;

// What the job of each test takes, much more than the account holds.
constexpr absl::Duration kTaken = absl::Milliseconds(100);

class UserThreadsTest : public ::testing::Test {
 protected:
  // Two jobs of a user, and one of another user after those: who has no time left is overtaken.
  std::vector<std::string> OrderAfter(const UserThreads::Work& first) {
    UserThreads threads(
        {.of_user = 1, .of_root = 1, .of_all = 1, .waiting = 3, .share = 0.1, .burst = absl::Milliseconds(20)}, {});
    std::vector<std::string> done;
    const auto start = [&](uid_t user, const std::string& name, const UserThreads::Work& work) {
      threads.Start(user, work, [&done, name] { done.push_back(name); });
    };
    start(kUser, "first", first);
    EXPECT_TRUE(threads.WaitUntil([&] { return done.size() == 1; }, base::Now() + absl::Minutes(1)));
    start(kUser, "second", [] { return absl::ZeroDuration(); });
    start(kOther, "other", [] { return absl::ZeroDuration(); });
    EXPECT_TRUE(threads.WaitUntil([&] { return done.size() == 3; }, base::Now() + absl::Minutes(1)));
    return done;
  }
};

TEST_F(UserThreadsTest, AUserPaysForWaits) {
  const auto work = [] {
    const base::Instant begin = base::Now();
    // The thread may wait for a processor before it sleeps. Nobody pays for that wait.
    do {
      absl::SleepFor(kTaken);
    } while (base::Now() - begin - process::ProcessorWaitOf(gettid()) < kTaken);
    return absl::ZeroDuration();
  };
  EXPECT_THAT(OrderAfter(work), ElementsAre("first", "other", "second"));
}

TEST_F(UserThreadsTest, NobodyPaysForOthersWithoutAProcessor) {
  const auto work = [] {
    absl::SleepFor(kTaken);
    return kTaken;
  };
  EXPECT_THAT(OrderAfter(work), ElementsAre("first", "second", "other"));
}

TEST_F(UserThreadsTest, NobodyPaysForAThreadWithoutAProcessor) {
  CrowdedProcessor processor;
  absl::Notification is_working;
  std::thread release([&] {
    is_working.WaitForNotification();
    absl::SleepFor(kTaken);
    processor.Release();
  });
  const auto work = [&] {
    is_working.Notify();
    // Returns when this thread runs on that processor. The work has next to no time of its own, even if the kernel lets
    // the thread run before the release.
    EXPECT_TRUE(processor.Take(0));
    return absl::ZeroDuration();
  };
  EXPECT_THAT(OrderAfter(work), ElementsAre("first", "second", "other"));
  release.join();
}

}  // namespace
}  // namespace heaptap::worker
