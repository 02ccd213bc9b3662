// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/history_fixture.h"
#include "userspace/history/retention.h"

namespace heaptap::history {
namespace {

using testing::SizeIs;

using HistoryRetentionTest = HistoryTest;

TEST_F(HistoryRetentionTest, AShortLivedProcessHasFinePointsOnly) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t service = *writer->AddProcess(Process(1));
  const int64_t job = *writer->AddProcess(Process(2));
  for (const int seconds : {0, 10, 20, 30}) {
    const absl::Time time = kBegin + absl::Seconds(seconds);
    ASSERT_TRUE(writer->AddPoint(service, time, Holding({{0, {7, 1, 1}}})).ok());
    if (seconds == 10 || seconds == 20) {
      ASSERT_TRUE(writer->AddPoint(job, time, Holding({{0, {7, 1, 1}}})).ok());
    }
  }
  ASSERT_TRUE(writer->EndProcess(job, kBegin + absl::Seconds(25), "exit 0").ok());
  ASSERT_TRUE(writer->Commit().ok());
  ASSERT_TRUE(Prune(writer->database(), MostPages(kDefaultBytes), kBegin + absl::Hours(2)).ok());
  EXPECT_TRUE(Read({.pid = 1}).ok());
  EXPECT_TRUE(absl::IsNotFound(Read({.pid = 2}).status())) << "it is forgotten after an hour";
}

TEST_F(HistoryRetentionTest, GrowsCoarserWithAge) {
  const std::unique_ptr<Writer> writer = Open();
  const int64_t process = [&] {
    EXPECT_TRUE(writer->Begin().ok());
    const int64_t id = *writer->AddProcess(Process(42));
    EXPECT_TRUE(writer->Commit().ok());
    return id;
  }();
  const absl::Time end = kBegin + absl::Hours(24 * 16);
  for (absl::Time time = kBegin; time < end;) {
    ASSERT_TRUE(writer->Begin().ok());
    for (int i = 0; i < 360 && time < end; i++) {
      const auto bytes = static_cast<uint64_t>(absl::ToInt64Seconds(time - kBegin));
      ASSERT_TRUE(writer->AddPoint(process, time, Holding({{0, {bytes, 1, 1}}})).ok());
      time += end - time > absl::Hours(2) ? absl::Seconds(60) : absl::Seconds(10);
    }
    ASSERT_TRUE(writer->Commit().ok());
    ASSERT_TRUE(Prune(writer->database(), MostPages(kDefaultBytes), time).ok());
  }
  const auto count = [&](absl::Time since, absl::Time until) {
    return Read({.pid = 42}, {.since = since, .until = until, .points = 100000})->points.size();
  };
  EXPECT_NEAR(count(end - absl::Minutes(50), end), 300, 2);
  EXPECT_NEAR(count(end - absl::Hours(23), end - absl::Hours(3)), 1200, 2);
  EXPECT_NEAR(count(end - absl::Hours(24 * 14), end - absl::Hours(26)), 6 * (24 * 14 - 26), 4);
  EXPECT_LE(count(kBegin, end - absl::Hours(24 * 14)), 32u) << "at most a window more";
  const absl::StatusOr<Timeline> thinned = Read({.pid = 42}, {.points = 50});
  EXPECT_THAT(thinned->points, SizeIs(50));
  for (const TimelinePoint& point : thinned->points) {
    EXPECT_EQ(point.rows.begin()->second.live_bytes, absl::ToInt64Seconds(point.time - kBegin));
  }
}

TEST_F(HistoryRetentionTest, WhatNobodyNeedsGoes) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  const uint64_t path = Path(*writer, process, {16, 32});
  ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{path, {1, 1, 1}}})).ok());
  ASSERT_TRUE(writer->AddMark(kBegin, process, "mark", "x").ok());
  ASSERT_TRUE(writer->EndProcess(process, kBegin, "exit 0").ok());
  ASSERT_TRUE(writer->Commit().ok());
  NameAll();
  ASSERT_TRUE(Prune(writer->database(), MostPages(kDefaultBytes), kBegin + absl::Hours(24 * 15)).ok());
  for (const char* table :
       {"processes", "points", "ticks", "process_paths", "paths", "frames", "files", "names", "marks"}) {
    Statement rows = writer->database().Prepare(absl::StrCat("SELECT count(*) FROM ", table).c_str());
    ASSERT_TRUE(rows.Step());
    EXPECT_EQ(rows.Integer(0), 0) << table;
  }
}

TEST_F(HistoryRetentionTest, NeverGrowsBeyondItsBound) {
  constexpr uint64_t kMost = 4 << 20;
  const std::unique_ptr<Writer> writer = Open(kMost);
  ASSERT_TRUE(writer->Begin().ok());
  std::vector<int64_t> loud;
  for (pid_t pid = 100; pid < 110; pid++) loud.push_back(*writer->AddProcess(Process(pid, "loud", 1000)));
  const int64_t quiet = *writer->AddProcess(Process(42, "quiet", 2000));
  std::vector<uint64_t> paths(200);
  for (const int64_t process : loud) {
    for (uint64_t i = 0; i < paths.size(); i++) paths[i] = Path(*writer, process, {16 * (i + 1)});
  }
  ASSERT_TRUE(writer->Commit().ok());
  uint64_t largest = 0;
  uint64_t value = 1;
  int written = 0;
  absl::Time time = kBegin;
  for (int round = 0; round < 700; round++, time += absl::Seconds(10)) {
    Rows rows;
    for (const uint64_t path : paths) rows[path] = {value += 7919, value % 1000 + 1, 1};
    absl::Status status = writer->Begin();
    for (const int64_t process : loud) {
      if (status.ok()) status = writer->AddPoint(process, time, Holding(rows));
    }
    if (status.ok()) status = writer->AddPoint(quiet, time, Holding({{0, {value, 1, 1}}}));
    if (status.ok()) status = writer->Commit();
    if (!status.ok()) writer->Rollback();
    written += status.ok();
    largest = std::max(largest, FileBytes());
    ASSERT_LE(FileBytes(), kMost) << "round " << round;
    if (round % 6 != 0 && status.ok()) continue;
    ASSERT_TRUE(Prune(writer->database(), MostPages(kMost), time).ok());
  }
  EXPECT_GT(largest, kMost / 2) << "the bound was not reached";
  EXPECT_GT(written, 690) << "room was made in time";
  // An hour of the quiet user is whole.
  EXPECT_GE(Read({.name = "quiet"}, {.since = time - absl::Minutes(55)})->points.size(), 325u);
  EXPECT_LT(Read({.name = "loud"}, {.since = time - absl::Minutes(55)})->points.size(), 325u);
}

// The smallest bound is smaller than the log of a larger one. Rounds for which there is no room are not written.
TEST_F(HistoryRetentionTest, TheSmallestBoundHoldsToo) {
  const std::unique_ptr<Writer> writer = Open(kLeastBytes);
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  ASSERT_TRUE(writer->Commit().ok());
  uint64_t value = 1;
  int written = 0;
  for (int round = 0; round < 2000; round++) {
    Rows rows;
    for (uint64_t path = 1; path <= 200; path++) rows[path] = {value += 7919, value % 1000 + 1, 1};
    const absl::Time time = kBegin + round * absl::Seconds(10);
    absl::Status status = writer->Begin();
    if (status.ok()) status = writer->AddPoint(process, time, Holding(rows));
    if (status.ok()) status = writer->Commit();
    if (!status.ok()) writer->Rollback();
    written += status.ok();
    ASSERT_LE(FileBytes(), kLeastBytes) << "round " << round;
    if (round % 6 == 0) {
      ASSERT_TRUE(Prune(writer->database(), MostPages(kLeastBytes), time).ok());
    }
  }
  EXPECT_EQ(written, 2000) << "room was made in time";
}

TEST_F(HistoryRetentionTest, ASmallerBoundAtTheNextStart) {
  {
    const std::unique_ptr<Writer> writer = Open(64 << 20);
    ASSERT_TRUE(writer->Begin().ok());
    const int64_t process = *writer->AddProcess(Process(42));
    uint64_t value = 1;
    for (int round = 0; round < 3000; round++) {
      Rows rows;
      for (uint64_t path = 1; path <= 200; path++) rows[path] = {value += 7919, value % 1000 + 1, 1};
      ASSERT_TRUE(writer->AddPoint(process, kBegin + round * absl::Seconds(10), Holding(rows)).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }
  ASSERT_GT(FileBytes(), 4u << 20);
  const std::unique_ptr<Writer> writer = Open(2 << 20);
  ASSERT_TRUE(Prune(writer->database(), MostPages(2 << 20), kBegin + absl::Seconds(30000)).ok());
  EXPECT_LE(FileBytes(), 2u << 20);
  EXPECT_TRUE(Read({.pid = 42}).ok());
  Statement most = writer->database().Prepare("PRAGMA max_page_count");
  ASSERT_TRUE(most.Step());
  EXPECT_EQ(static_cast<uint64_t>(most.Integer(0)), MostPages(2 << 20));
}

}  // namespace
}  // namespace heaptap::history
