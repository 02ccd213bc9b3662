// SPDX-License-Identifier: Apache-2.0
//
// What the daemon writes into the history, of the surveys of a collector.
#include <pthread.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fake_collector.h"
#include "tests/unit/history_fixture.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/repeated_task.h"
#include "userspace/crews/crews.h"
#include "userspace/daemon/historian.h"
#include "userspace/history/timeline.h"

namespace heaptap::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

class HistorianTest : public history::HistoryTest {
 protected:
  HistorianTest() {
    collector_.WhenAsked([this](const std::string& call) {
      surveys_ += call == "Survey" || call == "Survey with paths" ? 1 : 0;
      with_paths_ += call == "Survey with paths" ? 1 : 0;
      if (call == "Survey with paths") clock_.Work(survey_cost_);
    });
  }

  void Start() {
    historian_ = std::make_unique<Historian>(
        collector_, crews_,
        HistoryOptions{.path = path_, .most_bytes = most_bytes_, .interval = kInterval, .patience = patience_});
  }

  // So many further rounds. What the collector says now is written in the first of them.
  void Rounds(int count) {
    for (absl::Duration left = EndOfRound(); count > 0; count--) {
      clock_.Advance(left);
      left = EndOfRound();
    }
  }
  // Returns when the historian waits for its next round: how long. It waits in a round too, but not long.
  absl::Duration EndOfRound() {
    for (;;) {
      const absl::Duration left = clock_.AwaitWaiterWithin(kInterval);
      if (left > kInterval / 2) return left;
      clock_.Advance(left);
    }
  }

  profile::SurveyedProcess Surveyed(bool is_changed) {
    profile::SurveyedProcess process = {.ref = {42, 420},
                                        .command = "server",
                                        .owner = 0,
                                        .since = clock_.WallNow() - absl::Minutes(1),
                                        .control_groups = std::vector<std::string>{"/system.slice/shop.service"},
                                        .is_changed = is_changed};
    if (is_changed) process.stacks = {{.stack_id = 7, .live_bytes = 100, .live_objects = 2, .samples = 1}};
    return process;
  }

  static constexpr absl::Duration kInterval = absl::Seconds(1);
  FakeClock clock_;
  api::FakeCollector collector_;
  worker::Crews crews_;
  std::atomic<int> surveys_ = 0;
  std::atomic<int> with_paths_ = 0;
  absl::Duration survey_cost_ = {};  // of one with paths
  absl::Duration patience_ = 30 * kInterval;
  uint64_t most_bytes_ = history::kDefaultBytes;
  profile::Survey survey_;
  std::unique_ptr<Historian> historian_;
};

TEST_F(HistorianTest, WritesWhatASurveySays) {
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(1);
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_EQ(timeline->points.back().live_bytes, 100u);
  EXPECT_THAT(timeline->points.back().rows, SizeIs(1));
  EXPECT_EQ(timeline->paths.at(0).frames.at(0).offset, 7u);
}

// What was allocated tells how many samples of a later moment are new.
TEST_F(HistorianTest, RowsHaveTheSamplesThatWereAllocated) {
  profile::SurveyedProcess process = Surveyed(true);
  process.stacks = {{.stack_id = 7, .live_bytes = 100, .live_objects = 100, .samples = 100, .allocated_samples = 300}};
  collector_.SetSurvey({.processes = {process}});
  Start();
  Rounds(1);
  process.stacks[0] = {.stack_id = 7, .live_bytes = 104, .live_objects = 104, .samples = 104, .allocated_samples = 304};
  collector_.SetSurvey({.processes = {process}});
  Rounds(1);
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  std::vector<std::pair<uint64_t, uint64_t>> samples;  // live and allocated
  for (const history::TimelinePoint& point : timeline->points) {
    ASSERT_THAT(point.rows, SizeIs(1));
    const history::Held& row = point.rows.begin()->second;
    if (samples.empty() || samples.back().first != row.samples)
      samples.emplace_back(row.samples, row.allocated_samples);
  }
  EXPECT_THAT(samples, ElementsAre(Pair(100, 300), Pair(104, 304)));
}

// A stack larger than the address space cannot be made.
TEST_F(HistorianTest, WithoutAThreadNobodyWaitsForIt) {
  pthread_attr_t before;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  pthread_attr_t huge = before;
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  ::testing::internal::CaptureStderr();
  Start();
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cannot write the history"));
  EXPECT_FALSE(historian_->WriteNow(base::Instant::InfiniteFuture()));
}

TEST_F(HistorianTest, WritesAtOnceWhenAsked) {
  survey_cost_ = absl::Milliseconds(10);
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  EndOfRound();
  EXPECT_EQ(with_paths_, 1);
  profile::SurveyedProcess process = Surveyed(true);
  process.stacks[0].live_bytes = 300;
  collector_.SetSurvey({.processes = {process}});
  EXPECT_TRUE(historian_->WriteNow(base::Instant::InfiniteFuture()));
  EXPECT_EQ(with_paths_, 2) << "though paths were just read";
  EXPECT_EQ(Read({.name = "shop"})->points.back().live_bytes, 300u);
  // The usual rounds go on at their times.
  EXPECT_GT(EndOfRound(), kInterval / 2);
  EXPECT_EQ(surveys_, 2);
}

TEST_F(HistorianTest, WhatCannotBeWrittenAtOnceWaitsForTheNextRound) {
  path_ = "/proc/none/history.db";
  testing::internal::CaptureStderr();
  Start();
  EndOfRound();
  EXPECT_FALSE(historian_->WriteNow(base::Instant::InfiniteFuture()));
  EXPECT_GT(EndOfRound(), kInterval / 2);
  EXPECT_EQ(surveys_, 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot write the history in /proc/none/history.db"));
}

// Its tallies are read less often when there are very many.
TEST_F(HistorianTest, AProcessBeginsWhenItsPathsWereRead) {
  collector_.SetSurvey({.processes = {Surveyed(false)}});
  Start();
  Rounds(1);
  EXPECT_TRUE(absl::IsNotFound(Read({.name = "shop"}).status())) << "not a process that holds nothing";
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Rounds(1);
  collector_.SetSurvey({.processes = {Surveyed(false)}});
  Rounds(1);
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  for (const history::TimelinePoint& point : timeline->points) EXPECT_EQ(point.live_bytes, 100u);
}

// A new process takes more room than the tenth that is always free, and pruning by the clock comes once in 60 rounds.
TEST_F(HistorianTest, AFullHistoryLivesOn) {
  most_bytes_ = history::kLeastBytes;
  testing::internal::CaptureStderr();
  Start();
  EndOfRound();
  bool was_full = false;
  for (pid_t pid = 1000; pid < 1150; pid++) {
    collector_.ended.clear();
    for (const profile::SurveyedProcess& process : survey_.processes) {
      collector_.ended.push_back(
          {.summary = {.pid = process.ref.pid, .process_id = process.ref.process_id}, .ended = clock_.WallNow()});
    }
    survey_.processes = {Surveyed(true)};
    survey_.processes[0].ref = {pid, static_cast<uint64_t>(pid) * 10};
    for (uint64_t i = 0; i < Historian::kMaxPaths; i++) {
      survey_.processes[0].stacks.push_back(
          {.stack_id = static_cast<uint64_t>(pid) * 1000 + i, .live_bytes = 100, .live_objects = 2, .samples = 1});
    }
    collector_.SetSurvey(survey_);
    EXPECT_TRUE(historian_->WriteNow(base::Instant::InfiniteFuture())) << pid;
    was_full |= FileBytes() > history::kLeastBytes / 2;
  }
  historian_ = nullptr;
  EXPECT_TRUE(was_full);
  EXPECT_THAT(Read({.pid = 1149})->points, SizeIs(1));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(HistorianTest, AHistoryThatWasFullHealsAtTheStart) {
  most_bytes_ = history::kLeastBytes;
  {
    const std::unique_ptr<history::Writer> writer = Open(most_bytes_);
    ASSERT_TRUE(writer->Begin().ok());
    const int64_t process = *writer->AddProcess(Process(43));
    absl::Status status = writer->Commit();
    absl::Time time = clock_.WallNow() - absl::Minutes(50);
    for (uint64_t value = 1; status.ok(); time += absl::Seconds(1)) {
      history::Rows rows;
      for (uint64_t path = 1; path <= 200; path++) rows[path] = {value += 7919, value % 1000 + 1, 1};
      status = writer->Begin();
      if (status.ok()) status = writer->AddPoint(process, time, Holding(rows));
      if (status.ok()) status = writer->Commit();
    }
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    ASSERT_LT(time, clock_.WallNow()) << "none of it is old";
  }
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  EXPECT_TRUE(historian_->WriteNow(base::Instant::InfiniteFuture()));
  EXPECT_TRUE(Read({.name = "shop", .pid = 42}).ok());
  EXPECT_THAT(base::FailingTasks(), IsEmpty());
}

TEST_F(HistorianTest, AFolderThatComesBackIsUsedAgain) {
  testing::internal::CaptureStderr();
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(1);
  const size_t points = Read({.pid = 42})->points.size();
  std::filesystem::rename(folder_, folder_ + ".moved");
  Rounds(5);
  EXPECT_THAT(base::FailingTasks(), ElementsAre(Pair("history", testing::_)));
  std::filesystem::rename(folder_ + ".moved", folder_);
  Rounds(1);
  EXPECT_THAT(base::FailingTasks(), IsEmpty());
  EXPECT_GT(Read({.pid = 42})->points.size(), points) << "the same file goes on";
  // Another time it comes back empty.
  std::filesystem::remove_all(folder_);
  Rounds(2);
  std::filesystem::create_directory(folder_);
  clock_.Advance(base::RepeatedTask::kQuiet);
  Rounds(2);
  EXPECT_THAT(Read({.pid = 42})->points, Not(IsEmpty()));
  historian_ = nullptr;
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              MatchesRegex("heaptap: cannot write the history in [^\n]*: No such file or directory; the recording goes "
                           "on\nheaptap: the history is written again\n"));
}

// The outer frames of a stack come later, if its unwind tables do.
TEST_F(HistorianTest, WaitsForUnfinishedStacks) {
  collector_.SetUnfinished(3);
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(2);
  EXPECT_THAT(Read({.name = "shop"})->paths, SizeIs(0));
  Rounds(1);
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->paths, SizeIs(1));
  EXPECT_EQ(timeline->paths[0].frames.at(0).offset, 7u);
  EXPECT_EQ(timeline->points.back().rows.begin()->second.live_bytes, 100u);
}

TEST_F(HistorianTest, WaitsNotForever) {
  collector_.SetUnfinished(1 << 20);
  patience_ = 3 * kInterval;
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(2);
  EXPECT_THAT(Read({.name = "shop"})->paths, SizeIs(0));
  Rounds(1);
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->paths, SizeIs(1));
  EXPECT_EQ(timeline->paths[0].frames.at(0).offset, api::FakeCollector::kUnfinishedOffset);
}

// At a tenth of the usual interval, rounds with paths may take ten times their share of a core: 2 %.
TEST_F(HistorianTest, PathsAreReadAsOftenAsTheirCostAllows) {
  survey_cost_ = absl::Milliseconds(10);
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(5);
  EXPECT_EQ(with_paths_, 6);
  EXPECT_EQ(surveys_, 6);
}

TEST_F(HistorianTest, DearPathsAreReadLessOften) {
  survey_cost_ = absl::Seconds(1);
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(50);
  EXPECT_EQ(surveys_, 51);
  EXPECT_EQ(with_paths_, 1);
  Rounds(1);
  EXPECT_EQ(with_paths_, 2);
}

TEST_F(HistorianTest, AnEndIsWrittenOnce) {
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(1);
  collector_.ended = {{.summary = {.pid = 42, .process_id = 420}, .ended = clock_.WallNow(), .status = 9}};
  collector_.SetSurvey({});
  Rounds(1);
  const absl::StatusOr<history::Timeline> timeline = Read({.pid = 42});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_TRUE(timeline->processes[0].ended.has_value());
  EXPECT_EQ(timeline->processes[0].how, "signal 9");
}

// The books of a process that has ended are closed later: only then is it known how it ended.
TEST_F(HistorianTest, AnEndWaitsForItsReason) {
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(1);
  collector_.SetSurvey({});
  Rounds(2);
  EXPECT_FALSE(Read({.pid = 42})->processes[0].ended.has_value());
  collector_.ended = {{.summary = {.pid = 42, .process_id = 420}, .ended = clock_.WallNow(), .status = 9}};
  Rounds(1);
  ASSERT_TRUE(Read({.pid = 42})->processes[0].ended.has_value());
  EXPECT_EQ(Read({.pid = 42})->processes[0].how, "signal 9");
}

TEST_F(HistorianTest, WhoseEndIsNeverKnownHasEndedAllTheSame) {
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  Rounds(1);
  collector_.SetSurvey({});
  Rounds(1);
  const absl::Time missing = clock_.WallNow();
  Rounds(12);
  const std::optional<absl::Time> ended = Read({.pid = 42})->processes[0].ended;
  ASSERT_TRUE(ended.has_value());
  EXPECT_LE(*ended, missing) << "the time is that of the first round without it";
}

// The daemon before this one has left a process, of which the first survey knows no service yet.
TEST_F(HistorianTest, WhoIsNotKnownYetHasNotEnded) {
  {
    const std::unique_ptr<history::Writer> writer = Open();
    ASSERT_TRUE(writer->Begin().ok());
    for (const pid_t pid : {42, 43}) {
      ASSERT_TRUE(writer->AddProcess(Process(pid)).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }
  profile::SurveyedProcess process = Surveyed(true);
  process.since = history::kBegin;
  process.control_groups.reset();
  collector_.SetSurvey({.processes = {process}});
  Start();
  Rounds(1);
  ASSERT_TRUE(Read({.pid = 42}).ok());
  EXPECT_FALSE(Read({.pid = 42})->processes[0].ended.has_value());
  process.control_groups = std::vector<std::string>();
  collector_.SetSurvey({.processes = {process}});
  Rounds(1);
  EXPECT_FALSE(Read({.pid = 42})->processes[0].ended.has_value());
  const absl::StatusOr<history::Timeline> other = Read({.pid = 43});
  EXPECT_TRUE(absl::IsNotFound(other.status()) || other->processes[0].ended.has_value());
}

}  // namespace
}  // namespace heaptap::daemon
