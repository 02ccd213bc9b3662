// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/history_fixture.h"
#include "userspace/history/retention.h"

namespace heaptap::history {
namespace {

using testing::SizeIs;

using HistoryWriterTest = HistoryTest;

TEST_F(HistoryWriterTest, ANewDaemonGoesOnWithTheSameProcess) {
  int64_t process = 0;
  uint64_t path = 0;
  {
    const std::unique_ptr<Writer> writer = Open();
    ASSERT_TRUE(writer->Begin().ok());
    process = *writer->AddProcess(Process(42));
    const int64_t other = *writer->AddProcess(Process(43));
    path = Path(*writer, process, {16});
    ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{path, {100, 1, 1}}})).ok());
    ASSERT_TRUE(writer->AddPoint(other, kBegin, Holding({{0, {1, 1, 1}}})).ok());
    ASSERT_TRUE(writer->Commit().ok());
  }
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  ProcessFacts again = Process(42);
  again.started -= absl::Milliseconds(2);
  EXPECT_EQ(*writer->AddProcess(again), process) << "a clock of another daemon";
  EXPECT_EQ(Path(*writer, process, {16}), path);
  EXPECT_NE(Path(*writer, process, {17}), path);
  ASSERT_TRUE(writer->EndOthers({process}, kBegin + absl::Hours(5)).ok());
  // The rows of before are not known: this point must be whole.
  ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(10), Holding({{path, {100, 1, 1}}})).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<Timeline> timeline = Read({.pid = 42});
  ASSERT_THAT(timeline->points, SizeIs(2));
  EXPECT_EQ(timeline->points[1].rows.size(), 1u);
  EXPECT_EQ(Read({.pid = 43})->processes[0].ended, kBegin) << "when it was seen last";
  again.started += absl::Hours(1);
  EXPECT_NE(*writer->AddProcess(again), process) << "the numbers were given anew";
}

TEST_F(HistoryWriterTest, WhatIsRolledBackIsNotThere) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  ASSERT_TRUE(writer->Commit().ok());
  ASSERT_TRUE(writer->Begin().ok());
  const uint64_t path = Path(*writer, process, {16});
  ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{path, {100, 1, 1}}})).ok());
  writer->Rollback();
  ASSERT_TRUE(writer->Begin().ok());
  ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(10), Holding({{0, {1, 1, 1}}})).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<Timeline> timeline = Read({.pid = 42});
  ASSERT_THAT(timeline->points, SizeIs(1));
  EXPECT_EQ(timeline->points[0].live_bytes, 1u);
}

TEST_F(HistoryWriterTest, AClockThatGoesBack) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  const uint64_t path = Path(*writer, process, {16});
  for (const int seconds : {100, 110, 50, 60, 120, 130}) {
    const uint64_t bytes = 1000 + seconds;
    ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(seconds), Holding({{path, {bytes, 1, 1}}})).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<Timeline> timeline = Read({.pid = 42});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->points, SizeIs(6));
  for (const TimelinePoint& point : timeline->points) {
    EXPECT_EQ(point.rows.begin()->second.live_bytes, 1000 + absl::ToInt64Seconds(point.time - kBegin));
  }
}

TEST_F(HistoryWriterTest, MarksOfAProcessHaveABound) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  for (int64_t i = 0; i < kMaxMarks; i++) ASSERT_TRUE(writer->AddMark(kBegin, process, "mark", "x").ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(AddMark(path_, kBegin, process, "mark", "x")));
  EXPECT_TRUE(AddMark(path_, kBegin, std::nullopt, "mark", "x").ok());
}

// Names come by id, and later than a prune.
TEST_F(HistoryWriterTest, TheIdOfAPrunedFrameIsNotGivenToAnother) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t ended = *writer->AddProcess(Process(1));
  Path(*writer, ended, {16}, {"/bin/old", "v1"});
  ASSERT_TRUE(writer->EndProcess(ended, kBegin, "exit 0").ok());
  ASSERT_TRUE(writer->Commit().ok());
  const std::vector<Writer::NewFrame> old = new_frames_;
  ASSERT_TRUE(Prune(writer->database(), MostPages(kDefaultBytes), kBegin).ok());
  ASSERT_TRUE(writer->Begin().ok());
  Path(*writer, *writer->AddProcess(Process(2)), {32}, {"/bin/new", "v1"});
  ASSERT_TRUE(writer->Commit().ok());
  ASSERT_THAT(new_frames_, SizeIs(2)) << "its names are asked for";
  EXPECT_NE(new_frames_[1].frame, old[0].frame);
  EXPECT_NE(new_frames_[1].place.file, old[0].place.file);
}

TEST_F(HistoryWriterTest, TextsOfProcessesAreNoSql) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const std::string name = "'; DROP TABLE points; --\xff\n";
  const int64_t process = *writer->AddProcess(Process(42, name));
  ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{0, {1, 1, 1}}})).ok());
  ASSERT_TRUE(writer->AddMark(kBegin, process, "mark", name).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<Timeline> timeline = Read({.name = name});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  EXPECT_THAT(timeline->points, SizeIs(1));
}

}  // namespace
}  // namespace heaptap::history
