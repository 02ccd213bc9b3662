// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker_jobs.h"
#include "userspace/base/bounds.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/crews/errands.h"

namespace heaptap::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;

class ErrandsTest : public ::testing::Test {
 protected:
  Errands::JobId Start(uid_t user, Job job, const std::string& name) {
    return errands_.Start(user, {.job = job, .file = {.fd = file_.get()}, .question = name}, {.time = absl::Minutes(1)},
                          [this, name](const Answer& answer) {
                            done_.push_back(name);
                            statuses_.push_back(answer.status);
                          });
  }
  bool WaitFor(size_t count) {
    return errands_.WaitUntil([&] { return done_.size() >= count; }, base::Now() + absl::Minutes(1));
  }

  base::FileDescriptor file_{open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  std::vector<std::string> done_;
  std::vector<absl::Status> statuses_;
  Errands errands_{Urgency::kForeground};
};

TEST_F(ErrandsTest, AnswersComeToTheOwnersThread) {
  Start(kUser, kEcho, "a");
  Start(kUser, kEcho, "b");
  Start(kUser, kEcho, "c");
  EXPECT_TRUE(done_.empty());
  ASSERT_TRUE(WaitFor(3));
  EXPECT_THAT(done_, UnorderedElementsAre("a", "b", "c"));
  for (const absl::Status& status : statuses_) EXPECT_TRUE(status.ok()) << status;
}

// One user's jobs never end: those of another user do not wait for them.
TEST_F(ErrandsTest, UsersTakeTurns) {
  for (int i = 0; i < 10; i++) Start(kUser, kStall, "stalled");
  Start(kOther, kEcho, "other");
  Start(0, kEcho, "root");
  ASSERT_TRUE(WaitFor(2));
  EXPECT_THAT(done_, UnorderedElementsAre("other", "root"));
}

TEST_F(ErrandsTest, AUserWhoHasUsedUpTheAccountWaits) {
  Errands errands(Urgency::kForeground, {}, absl::Milliseconds(100));
  std::vector<std::string> done;
  const auto start = [&](uid_t user, Job job, const std::string& name) {
    errands.Start(user, {.job = job, .file = {.fd = file_.get()}}, {.time = absl::Seconds(1)},
                  [&, name](const Answer&) { done.push_back(name); });
  };
  const auto wait = [&](size_t count) {
    return errands.WaitUntil([&] { return done.size() == count; }, base::Now() + absl::Minutes(1));
  };
  start(kUser, kStall, "stalled");
  ASSERT_TRUE(wait(1));
  start(kUser, kEcho, "after the stalled one");
  start(kOther, kEcho, "other");
  ASSERT_TRUE(wait(3));
  EXPECT_THAT(done, ElementsAre("stalled", "other", "after the stalled one"));
}

TEST_F(ErrandsTest, AUserHasABoundOfWaitingJobs) {
  const uint64_t before = base::CountsBeyondBounds().at("files_to_read");
  for (size_t i = 0; i < Errands::kMaxOfUser + Errands::kMaxWaiting; i++) Start(kUser, kStall, "stalled");
  Start(kUser, kEcho, "too many");
  ASSERT_TRUE(WaitFor(1));
  EXPECT_EQ(done_.back(), "too many");
  EXPECT_TRUE(absl::IsUnavailable(statuses_.back())) << statuses_.back();
  EXPECT_EQ(base::CountsBeyondBounds().at("files_to_read"), before + 1);
}

// A user must not make another wait by being the first to want something.
TEST_F(ErrandsTest, AJobOfTwoUsersBeginsInTheTurnOfEither) {
  for (size_t i = 0; i < Errands::kMaxOfUser; i++) Start(kUser, kStall, "stalled");
  const Errands::JobId job = Start(kUser, kEcho, "joined");
  errands_.Join(kUser, job, kOther);
  errands_.Join(kUser, job, kOther);
  Start(kOther, kEcho, "other");
  ASSERT_TRUE(WaitFor(2));
  EXPECT_THAT(done_, UnorderedElementsAre("joined", "other")) << "each once";
  errands_.Join(kUser, job, kOther);
  Start(kOther, kEcho, "later");
  ASSERT_TRUE(WaitFor(3));
  EXPECT_EQ(done_.back(), "later");
}

TEST_F(ErrandsTest, AJobThatSomebodyWaitsForIsTheNext) {
  static_assert(Errands::kMaxOfUser == 2);
  Start(kUser, kStall, "stalled");
  errands_.Start(kUser, {.job = kStall, .file = {.fd = file_.get()}}, {.time = absl::Milliseconds(100)},
                 [this](const Answer&) { done_.push_back("stalled for a while"); });
  // They follow each other, because the other job never ends.
  Start(kUser, kEcho, "first");
  Start(kUser, kEcho, "second");
  const Errands::JobId wanted = Start(kUser, kEcho, "wanted");
  errands_.Hasten(kOther, wanted);
  errands_.Hasten(kUser, wanted + 1);
  errands_.Hasten(kUser, wanted);
  ASSERT_TRUE(WaitFor(4));
  EXPECT_THAT(done_, ElementsAre("stalled for a while", "wanted", "first", "second"));
  errands_.Hasten(kUser, wanted);  // is over
}

TEST_F(ErrandsTest, UnfinishedJobsEndWithTheObject) {
  const base::Instant begin = base::Now();
  {
    Errands errands(Urgency::kForeground);
    errands.Start(kUser, {.job = kStall, .file = {.fd = file_.get()}}, {.time = absl::Hours(1)},
                  [](const Answer&) { FAIL() << "nobody wants this answer"; });
  }
  EXPECT_LT(base::Now() - begin, absl::Minutes(1));
}

}  // namespace
}  // namespace heaptap::worker
