// SPDX-License-Identifier: Apache-2.0
//
// The history: writing, reading and forgetting.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/history/point_rows.h"
#include "userspace/history/retention.h"
#include "userspace/history/schema.h"
#include "userspace/history/service_name.h"
#include "userspace/history/timeline.h"
#include "userspace/history/writer.h"

namespace heaptap::history {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const absl::Time kBegin = absl::FromUnixSeconds(1'790'000'400);  // a multiple of all windows' steps

bool SeesAll(std::optional<uid_t> owner) {
  (void)owner;
  return true;
}

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string folder = testing::TempDir() + "/history.XXXXXX";
    folder_ = mkdtemp(folder.data());
    path_ = folder_ + "/history.db";
  }
  ~HistoryTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Writer> Open(uint64_t most_bytes = kDefaultBytes) {
    absl::StatusOr<std::unique_ptr<Writer>> writer = Writer::Open(path_, most_bytes);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }

  static ProcessFacts Process(pid_t pid, const std::string& service = "shop", uid_t owner = 0) {
    return {.service = service,
            .command = "server",
            .pid = pid,
            .process_id = static_cast<uint64_t>(pid) * 10,
            .owner = owner,
            .started = kBegin};
  }

  // A path through the file with these offsets, as row `number`.
  uint64_t Path(Writer& writer, int64_t process, const std::vector<uint64_t>& offsets, const CodeFile& file = {}) {
    const absl::StatusOr<int64_t> id = writer.AddFile(file.path.empty() ? CodeFile{"/bin/server", "v1"} : file);
    EXPECT_TRUE(id.ok()) << id.status();
    std::vector<FileOffset> frames;
    for (const uint64_t offset : offsets) frames.push_back({*id, offset});
    const absl::StatusOr<uint64_t> number = writer.AddPath(process, frames, new_frames_);
    EXPECT_TRUE(number.ok()) << number.status();
    return *number;
  }

  // Names the frames that no one has named yet: "f<offset>".
  void NameAll() {
    const absl::StatusOr<std::unique_ptr<NameWriter>> names = NameWriter::Open(path_);
    ASSERT_TRUE(names.ok());
    for (const Writer::NewFrame& frame : new_frames_) {
      const exporter::SourceFrame name = {
          .function = absl::StrCat("f", frame.place.offset), .file = "server.c", .line = 7};
      ASSERT_TRUE((*names)->Write(frame.place.file, "abcd", {{frame.frame, {name}}}).ok());
    }
    new_frames_.clear();
  }

  static Point Holding(const Rows& rows) {
    Point point = {.rss_bytes = 1 << 20, .allocated_bytes = 100, .lg_sample = 19, .rows = rows};
    for (const auto& [number, held] : rows) {
      point.live_bytes += held.live_bytes;
      point.live_objects += held.live_objects;
    }
    return point;
  }

  absl::StatusOr<Timeline> Read(const Subject& subject, const Range& range = {}) {
    return ReadTimeline(path_, subject, range, SeesAll);
  }

  uint64_t FileBytes() const {
    uint64_t bytes = 0;
    for (const char* end : {"", "-wal"}) {
      struct stat status;
      if (stat((path_ + end).c_str(), &status) == 0) bytes += status.st_size;
    }
    return bytes;
  }

  std::string folder_;
  std::string path_;
  std::vector<Writer::NewFrame> new_frames_;
};

TEST(PointRowsTest, RoundTrip) {
  const Rows rows = {{0, {5, 1, 1}}, {3, {1 << 20, 77, 2}}, {1000, {uint64_t{1} << 62, 1, 1}}};
  Rows read = {{9, {1, 1, 1}}};
  ASSERT_TRUE(Apply(/*is_whole=*/true, EncodeRows(rows), read).ok());
  EXPECT_EQ(read, rows);
}

TEST(PointRowsTest, ChangesAreSmallAndExact) {
  Rows before;
  for (uint64_t i = 1; i <= 200; i++) before[i] = {i * 1000, i, 1};
  Rows after = before;
  after.erase(1);
  after[7].live_bytes = 5;
  after[201] = {1, 1, 1};
  const std::string change = EncodeChange(before, after);
  EXPECT_LT(change.size(), 20u);
  ASSERT_TRUE(Apply(/*is_whole=*/false, change, before).ok());
  EXPECT_EQ(before, after);
  EXPECT_EQ(EncodeChange(after, after), "");
}

TEST(PointRowsTest, RefusesHostileBytes) {
  Rows rows;
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(true, "\x80", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(true, "\x01\x02\x03", rows)));
  EXPECT_TRUE(absl::IsInvalidArgument(Apply(true, std::string(20, '\x80') + "\x01\x01\x01\x01", rows)));
}

TEST(ServiceNameTest, UnitOrCommand) {
  EXPECT_EQ(ServiceName({{"/system.slice/redis-server.service"}}, "redis"), "redis-server");
  EXPECT_EQ(ServiceName({{"/"}, {"/system.slice/system-postgresql.slice/postgresql@15-main.service"}}, "postgres"),
            "postgresql@15-main");
  EXPECT_EQ(ServiceName({{"/user.slice/user-1000.slice/user@1000.service/app.slice/sync.service"}}, "x"), "sync");
  EXPECT_EQ(ServiceName({{"/user.slice/user-1000.slice/user@1000.service/init.scope"}}, "bash"), "bash");
  EXPECT_EQ(ServiceName({{"/docker/0123abcd"}}, "nginx"), "nginx");
  EXPECT_EQ(ServiceName({}, "make"), "make");
}

TEST_F(HistoryTest, WhatWasWrittenIsRead) {
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

TEST_F(HistoryTest, AMomentOfThePast) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  const uint64_t path = Path(*writer, process, {16});
  for (int i = 0; i < 100; i++) {
    const uint64_t bytes = 1000 + i;
    ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Seconds(10 * i), Holding({{path, {bytes, 1, 1}}})).ok());
  }
  ASSERT_TRUE(writer->EndProcess(process, kBegin + absl::Seconds(1000), "").ok());
  ASSERT_TRUE(writer->Commit().ok());
  const auto at = [&](double seconds) {
    return ReadMoment(path_, {.name = "shop"}, kBegin + absl::Seconds(seconds), SeesAll);
  };
  ASSERT_TRUE(at(456).ok()) << at(456).status();
  EXPECT_EQ(at(456)->points[0].live_bytes, 1045u);
  EXPECT_EQ(at(0)->points[0].live_bytes, 1000u);
  EXPECT_TRUE(absl::IsNotFound(at(-1).status()));
  EXPECT_TRUE(absl::IsNotFound(at(1005).status())) << "it had ended";
}

TEST_F(HistoryTest, ProcessesOfAServiceFollowOneAnotherAndAddUp) {
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

TEST_F(HistoryTest, AnotherUserSeesNothing) {
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

TEST_F(HistoryTest, ANewDaemonGoesOnWithTheSameProcess) {
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
  EXPECT_EQ(*writer->AddProcess(Process(42)), process);
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
}

TEST_F(HistoryTest, WhatIsRolledBackIsNotThere) {
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

TEST_F(HistoryTest, AClockThatGoesBack) {
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

// Its recording is known to have begun a moment after the time of the round.
TEST_F(HistoryTest, AFirstPointFromBeforeTheStart) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  for (const int i : {-1, 0, 1}) {
    ASSERT_TRUE(writer->AddPoint(process, kBegin + absl::Milliseconds(20 * i), Holding({{0, {7, 1, 1}}})).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_THAT(Read({.pid = 42})->points, SizeIs(3));
}

TEST_F(HistoryTest, AShortLivedProcessHasFinePointsOnly) {
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

TEST_F(HistoryTest, MarksOfAProcessHaveABound) {
  const std::unique_ptr<Writer> writer = Open();
  ASSERT_TRUE(writer->Begin().ok());
  const int64_t process = *writer->AddProcess(Process(42));
  for (int64_t i = 0; i < kMaxMarks; i++) ASSERT_TRUE(writer->AddMark(kBegin, process, "mark", "x").ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(AddMark(path_, kBegin, process, "mark", "x")));
  EXPECT_TRUE(AddMark(path_, kBegin, std::nullopt, "mark", "x").ok());
}

TEST_F(HistoryTest, GrowsCoarserWithAge) {
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

TEST_F(HistoryTest, WhatNobodyNeedsGoes) {
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

// One user writes as much as possible, another one a little.
TEST_F(HistoryTest, NeverGrowsBeyondItsBound) {
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

TEST_F(HistoryTest, ASmallerBoundAtTheNextStart) {
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
  for (int i = 0; i < 20; i++) {
    ASSERT_TRUE(Prune(writer->database(), MostPages(2 << 20), kBegin + absl::Seconds(30000)).ok());
  }
  EXPECT_LE(FileBytes(), 2u << 20);
  EXPECT_TRUE(Read({.pid = 42}).ok());
}

TEST_F(HistoryTest, ACorruptFileIsSetAside) {
  for (const size_t offset : {size_t{0}, size_t{3} * 8192}) {
    SCOPED_TRACE(offset);
    {
      const std::unique_ptr<Writer> writer = Open();
      ASSERT_TRUE(writer->Begin().ok());
      const int64_t process = *writer->AddProcess(Process(42));
      ASSERT_TRUE(writer->AddPoint(process, kBegin, Holding({{0, {1, 1, 1}}})).ok());
      ASSERT_TRUE(writer->Commit().ok());
    }
    ASSERT_TRUE(Read({.pid = 42}).ok());
    {
      const int file = open(path_.c_str(), O_WRONLY);
      const std::string noise(8192, '\x5a');
      ASSERT_EQ(pwrite(file, noise.data(), noise.size(), static_cast<off_t>(offset)), 8192);
      close(file);
    }
    testing::internal::CaptureStderr();
    const std::unique_ptr<Writer> writer = Open();
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("is corrupt ("));
    EXPECT_THAT(said, HasSubstr("history.db.corrupt, and a new one begins\n"));
    EXPECT_TRUE(std::filesystem::exists(path_ + ".corrupt"));
    EXPECT_TRUE(absl::IsNotFound(Read({.pid = 42}).status()));
  }
}

TEST_F(HistoryTest, AFileOfAnotherVersionStays) {
  {
    const std::unique_ptr<Writer> writer = Open();
    ASSERT_TRUE(writer->database().Execute("PRAGMA user_version = 99").ok());
  }
  EXPECT_THAT(Writer::Open(path_, kDefaultBytes).status().message(), HasSubstr("(99 instead of 1)"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".corrupt"));
}

TEST_F(HistoryTest, NobodyElseMayReadIt) {
  const std::unique_ptr<Writer> writer = Open();
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    struct stat status;
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << entry.path();
  }
  // A link instead of the file is not followed.
  const std::string link = folder_ + "/link.db";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_FALSE(Writer::Open(link, kDefaultBytes).ok());
}

TEST_F(HistoryTest, TextsOfProcessesAreNoSql) {
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

TEST_F(HistoryTest, ManyProcessesAreReadInOneWay) {
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
    for (const TimelinePoint& point : timeline->points) EXPECT_EQ(point.processes, count);
  }
}

}  // namespace
}  // namespace heaptap::history
