// SPDX-License-Identifier: Apache-2.0
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/history_fixture.h"

namespace heaptap::history {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using HistoryTimelineTest = HistoryTest;

TEST_F(HistoryTimelineTest, WhatWasWrittenIsRead) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const absl::StatusOr<int64_t> process = writer->AddProcess(Process(42));
  ASSERT_TRUE(process.ok()) << process.status();
  const uint64_t first = Path(*writer, *process, {16, 32});
  const uint64_t second = Path(*writer, *process, {48, 32});
  EXPECT_EQ(Path(*writer, *process, {16, 32}), first) << "one number for each path";
  ASSERT_TRUE(writer->AddPoint(*process, kBegin, Holding({{first, {100, 2, 1}}, {0, {5, 1, 1}}})).ok());
  ASSERT_TRUE(writer->AddPoint(*process, kBegin + absl::Seconds(10), Holding({{second, {300, 3, 1}}})).ok());
  ASSERT_TRUE(writer->AddMark(kBegin, *process, "dump", "/x.heap").ok());
  ASSERT_TRUE(writer->EndProcess(*process, kBegin + absl::Seconds(15), "signal 9").ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(new_frames_, SizeIs(3)) << "each place is asked for once";
  NameAll();
  ASSERT_TRUE(AddMark(path_, kBegin + absl::Seconds(5), std::nullopt, "mark", "release").ok());

  const absl::StatusOr<Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->points, SizeIs(2));
  EXPECT_EQ(timeline->points[0].live_bytes, 105u);
  EXPECT_EQ(timeline->points[0].rows.at(0), (Held{5, 1, 1}));
  EXPECT_THAT(timeline->points[1].rows, SizeIs(1));
  EXPECT_EQ(timeline->points[1].pid, 42);
  ASSERT_THAT(timeline->paths, SizeIs(2));
  ASSERT_THAT(timeline->paths[0].frames, SizeIs(2));
  EXPECT_EQ(timeline->paths[0].frames[0].source.function, "f16");
  EXPECT_EQ(timeline->paths[0].frames[0].source.line, 7u);
  EXPECT_EQ(timeline->paths[0].frames[0].library, "/bin/server");
  std::vector<std::string> marks;
  for (const Mark& mark : timeline->marks) marks.push_back(absl::StrCat(mark.kind, " ", mark.text));
  EXPECT_THAT(marks, ElementsAre("start server", "dump /x.heap", "mark release", "end signal 9"));

  for (const Subject& subject : {Subject{.name = "server"}, Subject{.pid = 42}}) {
    const absl::StatusOr<Timeline> same = Read(subject);
    ASSERT_TRUE(same.ok()) << same.status();
    EXPECT_THAT(same->points, SizeIs(2));
  }
  EXPECT_THAT(Read({.name = "nobody"}).status().message(), HasSubstr("there is no history of nobody"));
}

TEST_F(HistoryTimelineTest, AMomentOfThePast) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  const uint64_t path = Path(*writer, process, {16});
  for (int i = 0; i < 100; i++) {
    const uint64_t bytes = 1000 + i;
    ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(10 * i), Holding({{path, {bytes, 1, 1}}})).ok());
  }
  ASSERT_TRUE(writer->EndProcess(process, kBegin + absl::Seconds(1000), "exit 0").ok());
  ASSERT_TRUE(writer->Commit().ok());
  const auto at = [&](double seconds) {
    return ReadMoment(path_, {.name = "shop"}, kBegin + absl::Seconds(seconds), SeesAll);
  };
  ASSERT_TRUE(at(456).ok()) << at(456).status();
  EXPECT_EQ(at(456)->points[0].live_bytes, 1045u);
  EXPECT_EQ(at(0)->points[0].live_bytes, 1000u);
  EXPECT_TRUE(absl::IsNotFound(at(-1).status()));
  EXPECT_TRUE(absl::IsNotFound(at(1005).status())) << "it had ended";
  EXPECT_THAT(at(1005).status().message(),
              ContainsRegex("there is no history of shop at .*: it ended at .* \\(exit 0\\); "
                            "its last moment is shop@last$"));
  EXPECT_THAT(at(-1).status().message(), Not(HasSubstr("ended"))) << "it ended later";
}

TEST_F(HistoryTimelineTest, ProcessesOfAServiceFollowOneAnotherAndAddUp) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t one = *writer->AddProcess(Process(1));
  const int64_t two = *writer->AddProcess(Process(2));
  // After an upgrade the same functions lie elsewhere in another file.
  const uint64_t old_path = Path(*writer, one, {16});
  const uint64_t new_path = Path(*writer, two, {16}, {"/usr/bin/server", "v2"});
  ASSERT_TRUE(writer->Commit().ok());
  NameAll();
  ASSERT_TRUE(writer->Begin().ok());
  ASSERT_TRUE(writer->AddPoint(one, kBegin, Holding({{old_path, {100, 1, 1}}})).ok());
  ASSERT_TRUE(writer->AddPoint(two, kBegin, Holding({{new_path, {10, 1, 1}}})).ok());
  ASSERT_TRUE(writer->EndProcess(one, kBegin + absl::Seconds(5), "exit 0").ok());
  ASSERT_TRUE(writer->AddPoint(two, kBegin + absl::Seconds(10), Holding({{new_path, {20, 1, 1}}})).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<Timeline> timeline = Read({.name = "shop"});
  ASSERT_TRUE(timeline.ok()) << timeline.status();
  ASSERT_THAT(timeline->points, SizeIs(2));
  EXPECT_EQ(timeline->points[0].processes, 2);
  EXPECT_EQ(timeline->points[0].live_bytes, 110u);
  EXPECT_EQ(timeline->points[1].processes, 1);
  ASSERT_THAT(timeline->paths, SizeIs(1)) << "the same functions of two builds are one path";
  EXPECT_EQ(timeline->points[0].rows.begin()->second.live_bytes, 110u);
}

// A program chooses its names.
TEST_F(HistoryTimelineTest, NamesThatTakeTooMuchMemory) {
  constexpr uint64_t kPaths = 40;
  constexpr size_t kFrames = 60;
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const absl::StatusOr<int64_t> process = writer->AddProcess(Process(42));
  ASSERT_TRUE(process.ok()) << process.status();
  Rows rows;
  for (uint64_t i = 1; i <= kPaths; i++) {
    std::vector<uint64_t> offsets(kFrames, 16);
    offsets.front() = 16 + 16 * i;
    rows[Path(*writer, *process, offsets)] = {100, 1, 1};
  }
  ASSERT_TRUE(writer->AddPoint(*process, kBegin, Holding(rows)).ok());
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<std::unique_ptr<NameWriter>> names = NameWriter::Open(path_);
  ASSERT_TRUE(names.ok());
  for (const Writer::NewFrame& frame : new_frames_) {
    const profile::SourceFrame name = {.function = absl::StrCat(frame.place.offset, std::string(16 << 10, 'n'))};
    ASSERT_TRUE((*names)->Write(frame.place.file, "abcd", {{frame.frame, {name}}}).ok());
  }
  EXPECT_TRUE(absl::IsOutOfRange(Read({.pid = 42}).status())) << Read({.pid = 42}).status();
  EXPECT_TRUE(absl::IsOutOfRange(ReadMoment(path_, {.pid = 42}, kBegin, SeesAll).status()));
  const absl::StatusOr<Timeline> fewer = Read({.pid = 42}, {.paths = kPaths / 2});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_THAT(fewer->paths, SizeIs(kPaths / 2));
}

TEST_F(HistoryTimelineTest, AnotherUserSeesNothing) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  for (const uid_t owner : {1000, 2000}) {
    const int64_t process = *writer->AddProcess(Process(static_cast<pid_t>(owner), "shop", owner));
    ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{0, {owner, 1, 1}}})).ok());
    ASSERT_TRUE(writer->AddMark(kBegin, process, "mark", absl::StrCat("of ", owner)).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  const Sees sees = [](std::optional<uid_t> owner) { return owner == 1000; };
  const absl::StatusOr<Timeline> timeline = ReadTimeline(path_, {.name = "shop"}, {}, sees);
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline->points[0].live_bytes, 1000u);
  for (const Mark& mark : timeline->marks) EXPECT_NE(mark.text, "of 2000");
  EXPECT_TRUE(absl::IsNotFound(ReadTimeline(path_, {.pid = 2000}, {}, sees).status()));
  EXPECT_EQ(ReadServices(path_, sees)->at(0).processes, 1u);
  EXPECT_THAT(*ReadServices(path_, [](std::optional<uid_t> owner) { return owner == 3; }), IsEmpty());
}

TEST_F(HistoryTimelineTest, AFirstPointFromBeforeTheStart) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  for (const int i : {-1, 0, 1}) {
    ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Milliseconds(20 * i), Holding({{0, {7, 1, 1}}})).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(Read({.pid = 42})->points, SizeIs(3));
}

TEST_F(HistoryTimelineTest, FewPointsOfManyBeginAndEndAsAllDo) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  for (int i = 0; i < 100; i++) {
    ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(10 * i), Holding({{0, {1, 1, 1}}})).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  const absl::StatusOr<Timeline> timeline = Read({.pid = 42}, {.points = 4});
  ASSERT_THAT(timeline->points, SizeIs(4));
  for (int i = 0; i < 4; i++) EXPECT_EQ(timeline->points[i].time, kBegin + absl::Seconds(10 * 33 * i)) << i;
}

TEST_F(HistoryTimelineTest, ManyProcessesAreReadInOneWay) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  std::vector<int64_t> processes;
  for (pid_t pid = 1; pid <= 30; pid++) processes.push_back(*writer->AddProcess(Process(pid, pid <= 20 ? "a" : "b")));
  for (int i = 0; i < 50; i++) {
    for (const int64_t process : processes) {
      ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(10 * i), Holding({{0, {1, 1, 1}}})).ok());
    }
  }
  ASSERT_TRUE(writer->Commit().ok());
  for (const auto& [name, count] : {std::pair("a", 20), std::pair("b", 10)}) {
    const absl::StatusOr<Timeline> timeline = Read({.name = name});
    ASSERT_THAT(timeline->points, SizeIs(50));
    for (const TimelinePoint& point : timeline->points) {
      EXPECT_EQ(point.processes, count);
      EXPECT_EQ(point.rows.at(0).live_bytes, static_cast<uint64_t>(count)) << "all of them hold memory by one path";
    }
  }
}

}  // namespace
}  // namespace heaptap::history
