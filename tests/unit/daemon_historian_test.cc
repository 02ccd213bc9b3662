// SPDX-License-Identifier: Apache-2.0
//
// What the daemon writes into the history, of the surveys of a collector.
#include <atomic>
#include <memory>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/fake_collector.h"
#include "tests/unit/history_fixture.h"
#include "userspace/base/processor_time.h"
#include "userspace/daemon/historian.h"
#include "userspace/history/timeline.h"
#include "userspace/worker/crews.h"

namespace heaptap::daemon {
namespace {

using testing::SizeIs;

constexpr absl::Duration kPatience = absl::Seconds(30);

class HistorianTest : public history::HistoryTest {
 protected:
  HistorianTest() {
    collector_.WhenAsked([this](const std::string& call) {
      surveys_ += call == "Survey" || call == "Survey with paths" ? 1 : 0;
      with_paths_ += call == "Survey with paths" ? 1 : 0;
      if (call == "Survey with paths" && survey_cost_ > absl::ZeroDuration()) Burn(survey_cost_);
    });
  }

  void Start() {
    historian_ = std::make_unique<Historian>(
        collector_, crews_, HistoryOptions{.path = path_, .interval = kInterval, .patience = patience_});
  }

  // Waits until what the collector says now is written.
  void WaitForRounds() {
    // The second one from now began when the first one was over.
    const int before = surveys_;
    const absl::Time end = absl::Now() + kPatience;
    while (surveys_ < before + 3 && absl::Now() < end) absl::SleepFor(kInterval / 5);
    ASSERT_GE(surveys_, before + 3);
  }

  static void Burn(absl::Duration cost) {
    const absl::Duration end = base::ThreadProcessorTime() + cost;
    while (base::ThreadProcessorTime() < end) continue;
  }

  static profile::SurveyedProcess Surveyed(bool is_changed) {
    profile::SurveyedProcess process = {.ref = {42, 420},
                                        .command = "server",
                                        .owner = 0,
                                        .since = absl::Now() - absl::Minutes(1),
                                        .control_groups = std::vector<std::string>{"/system.slice/shop.service"},
                                        .is_changed = is_changed};
    if (is_changed) process.stacks = {{.stack_id = 7, .live_bytes = 100, .live_objects = 2, .samples = 1}};
    return process;
  }

  static constexpr absl::Duration kInterval = absl::Milliseconds(20);
  api::FakeCollector collector_;
  worker::Crews crews_;
  std::atomic<int> surveys_ = 0;
  std::atomic<int> with_paths_ = 0;
  absl::Duration survey_cost_ = {};  // of one with paths
  absl::Duration patience_ = kPatience;
  std::unique_ptr<Historian> historian_;
};

TEST_F(HistorianTest, WritesWhatASurveySays) {
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  WaitForRounds();
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_EQ(timeline->points.back().live_bytes, 100u);
  EXPECT_THAT(timeline->points.back().rows, SizeIs(1));
  EXPECT_EQ(timeline->paths.at(0).frames.at(0).offset, 7u);
}

// Its tallies are read less often when there are very many.
TEST_F(HistorianTest, AProcessBeginsWhenItsPathsWereRead) {
  collector_.SetSurvey({.processes = {Surveyed(false)}});
  Start();
  WaitForRounds();
  EXPECT_TRUE(absl::IsNotFound(Read({.name = "shop"}).status())) << "not a process that holds nothing";
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  WaitForRounds();
  collector_.SetSurvey({.processes = {Surveyed(false)}});
  WaitForRounds();
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  for (const history::TimelinePoint& point : timeline->points) EXPECT_EQ(point.live_bytes, 100u);
}

// The outer frames of a stack come later, if its unwind tables do.
TEST_F(HistorianTest, WaitsForUnfinishedStacks) {
  collector_.SetUnfinished(3);
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  while (surveys_ <= 3) WaitForRounds();
  WaitForRounds();
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
  for (int i = 0; i < 3; i++) WaitForRounds();
  const absl::StatusOr<history::Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->paths, SizeIs(1));
  EXPECT_EQ(timeline->paths[0].frames.at(0).offset, api::FakeCollector::kUnfinishedOffset);
}

// At 20 ms instead of 10 s, rounds with paths may take a whole core: 2 ms of work need a pause of 2 ms.
TEST_F(HistorianTest, PathsAreReadAsOftenAsTheirCostAllows) {
  survey_cost_ = absl::Milliseconds(2);
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  constexpr int kTimes = 5;
  const absl::Time end = absl::Now() + kPatience;
  while (with_paths_ < kTimes && absl::Now() < end) absl::SleepFor(kInterval / 5);
  EXPECT_GE(with_paths_, kTimes);
}

TEST_F(HistorianTest, DearPathsAreReadLessOften) {
  survey_cost_ = 100 * kInterval;
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  WaitForRounds();
  EXPECT_LT(with_paths_, surveys_);
}

TEST_F(HistorianTest, AnEndIsWrittenOnce) {
  collector_.SetSurvey({.processes = {Surveyed(true)}});
  Start();
  WaitForRounds();
  collector_.ended = {{.summary = {.pid = 42, .process_id = 420}, .ended = absl::Now(), .status = 9}};
  collector_.SetSurvey({});
  WaitForRounds();
  const absl::StatusOr<history::Timeline> timeline = Read({.pid = 42});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_TRUE(timeline->processes[0].ended.has_value());
  EXPECT_EQ(timeline->processes[0].how, "signal 9");
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
  WaitForRounds();
  ASSERT_TRUE(Read({.pid = 42}).ok());
  EXPECT_FALSE(Read({.pid = 42})->processes[0].ended.has_value());
  process.control_groups = std::vector<std::string>();
  collector_.SetSurvey({.processes = {process}});
  WaitForRounds();
  EXPECT_FALSE(Read({.pid = 42})->processes[0].ended.has_value());
  const absl::StatusOr<history::Timeline> other = Read({.pid = 43});
  EXPECT_TRUE(absl::IsNotFound(other.status()) || other->processes[0].ended.has_value());
}

}  // namespace
}  // namespace heaptap::daemon
