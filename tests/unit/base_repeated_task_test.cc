// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/repeated_task.h"

namespace heaptap::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

const absl::Status kFull = absl::ResourceExhaustedError("the disk is full");
constexpr char kSaidFailure[] = "heaptap: cannot write it: the disk is full; make room\n";
constexpr char kSaidSuccess[] = "heaptap: it is written again\n";

class RepeatedTaskTest : public ::testing::Test {
 protected:
  std::string Said(const absl::Status& result) {
    testing::internal::CaptureStderr();
    task_->Note(result);
    return testing::internal::GetCapturedStderr();
  }

  FakeClock clock_;
  std::unique_ptr<RepeatedTask> task_{new RepeatedTask(
      {.name = "test", .failure = "cannot write it", .success = "it is written", .advice = "make room"})};
};

TEST_F(RepeatedTaskTest, SaysWhatChanges) {
  EXPECT_EQ(Said(absl::OkStatus()), "");
  EXPECT_EQ(Said(kFull), kSaidFailure);
  for (int i = 0; i < 100; i++) {
    clock_.Advance(absl::Seconds(1));
    EXPECT_EQ(Said(absl::UnavailableError(absl::StrCat("try ", i))), "");
  }
  EXPECT_EQ(Said(absl::OkStatus()), kSaidSuccess);
  EXPECT_EQ(Said(absl::OkStatus()), "");
}

TEST_F(RepeatedTaskTest, IsAFigureWhileItFails) {
  EXPECT_THAT(FailingTasks(), IsEmpty());
  const absl::Time since = clock_.WallNow();
  Said(kFull);
  clock_.Advance(absl::Minutes(5));
  Said(kFull);
  EXPECT_THAT(FailingTasks(), ElementsAre(Pair("test", since)));
  clock_.AdvanceWall(-absl::Hours(1));
  EXPECT_THAT(FailingTasks(), ElementsAre(Pair("test", since - absl::Hours(1)))) << "it still fails for five minutes";
  Said(absl::OkStatus());
  EXPECT_THAT(FailingTasks(), IsEmpty());
}

TEST_F(RepeatedTaskTest, IsNoFigureAfterItsEnd) {
  Said(kFull);
  task_ = nullptr;
  EXPECT_THAT(FailingTasks(), IsEmpty());
}

TEST_F(RepeatedTaskTest, TasksOfOneNameFailAsLongAsOneDoes) {
  const absl::Time since = clock_.WallNow();
  Said(kFull);
  clock_.Advance(absl::Seconds(1));
  RepeatedTask other({.name = "test"});
  testing::internal::CaptureStderr();
  other.Note(kFull);
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(FailingTasks(), ElementsAre(Pair("test", since)));
  Said(absl::OkStatus());
  EXPECT_THAT(FailingTasks(), ElementsAre(Pair("test", since + absl::Seconds(1))));
}

// One that fails every other time says two lines a minute, and which of the two is true is said in the end.
TEST_F(RepeatedTaskTest, DoesNotFillTheLog) {
  std::string said = Said(kFull);
  for (int i = 0; i < 59; i++) {
    said += Said(absl::OkStatus());
    clock_.Advance(absl::Seconds(1));
    said += Said(kFull);
  }
  EXPECT_EQ(said, std::string(kSaidFailure) + kSaidSuccess);
  EXPECT_THAT(FailingTasks(), ElementsAre(Pair("test", clock_.WallNow())));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Said(kFull), kSaidFailure);
}

}  // namespace
}  // namespace heaptap::base
