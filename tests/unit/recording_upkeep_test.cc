// SPDX-License-Identifier: Apache-2.0
//
// The work of each second in a system-wide recording, on a process that exists and has simulated books.
#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/recorder_fixture.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/repeated_task.h"
#include "userspace/recording/upkeep.h"

namespace heaptap::recording {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr uint32_t kEndedThread = 5'000'100;
constexpr uint64_t kBound = 100;  // tallies of all processes
constexpr absl::Duration kInstant = absl::Milliseconds(1);

class UpkeepTest : public RecorderTest {
 protected:
  UpkeepTest() {
    RecorderOptions options = EveryProcess();
    options.map_sizes.tallies = kBound;
    Start(options);
    process_id_ = kernel_.Enter(child_.pid(), "child");
    recorder_->Pump();
    kernel_.on_step = [this](const std::string& step) {
      if (step != "VisitTallies") return;
      readings_++;
      clock_.Advance(kCost);
    };
  }
  ~UpkeepTest() override { recorder_ = nullptr; }

  void SetTallies(uint64_t count, uint32_t limit = 0) {
    absl::MutexLock lock(&kernel_.mutex);
    heaptap_process& process = kernel_.processes.at(process_id_).process;
    process.figures.tallies = count;
    process.limits.max_tallies = limit;
  }
  // Objects that one thread has allocated, of which some are freed.
  void AddTally(uint32_t tid, uint64_t allocated, uint64_t freed) {
    bpf::TallyEntry entry = {.stack_id = next_stack_++, .tid = tid, .tally = {}};
    entry.tally.allocated = {.objects = allocated, .bytes = allocated, .weight = allocated, .weighted_objects = 0};
    entry.tally.freed = {.objects = freed, .bytes = freed, .weight = freed, .weighted_objects = 0};
    kernel_.tallies[process_id_].push_back(entry);
  }
  // The threads that have tallies.
  std::multiset<uint32_t> Threads() {
    std::multiset<uint32_t> tids;
    for (const bpf::TallyEntry& entry : kernel_.tallies[process_id_]) tids.insert(entry.tid);
    return tids;
  }
  // Returns how often all tallies were read to fold some. What was begun is finished.
  int TickAfter(absl::Duration duration) {
    clock_.Advance(duration);
    const int before = readings_;
    recorder_->everyone().Tick(base::Now());
    recorder_->Pump();
    EXPECT_FALSE(recorder_->everyone().IsFolding());
    return readings_ - before;
  }
  size_t States() const {
    using Iterator = std::filesystem::directory_iterator;
    return static_cast<size_t>(std::distance(Iterator(folder_ / "recording"), Iterator()));
  }

  static constexpr absl::Duration kCost = absl::Milliseconds(10);  // of one reading
  FakeClock clock_;
  Child child_;
  uint64_t process_id_ = 0;
  uint64_t next_stack_ = 1000;
  int readings_ = 0;
};

TEST_F(UpkeepTest, OnlyWhatEndedThreadsHaveFreedIsFolded) {
  const auto living = static_cast<uint32_t>(child_.pid());
  AddTally(kEndedThread, 3, 3);
  AddTally(kEndedThread, 3, 2);
  AddTally(living, 3, 3);
  AddTally(HEAPTAP_HEAP_TID | 7, 3, 3);
  SetTallies(kBound / 2);
  EXPECT_EQ(TickAfter(absl::Seconds(1)), 1);
  EXPECT_THAT(Threads(), UnorderedElementsAre(0u, kEndedThread, living, HEAPTAP_HEAP_TID | 7));
}

TEST_F(UpkeepTest, NothingIsReadWhileThereIsRoom) {
  SetTallies(kBound / 4 - 1);
  EXPECT_EQ(TickAfter(absl::Hours(1)), 0);
  // One process has less room than all together.
  SetTallies(5, 20);
  EXPECT_EQ(TickAfter(absl::Seconds(1)), 1);
}

TEST_F(UpkeepTest, WhatGainsNothingIsDoneRarely) {
  AddTally(static_cast<uint32_t>(child_.pid()), 3, 3);
  SetTallies(50);
  EXPECT_EQ(TickAfter(absl::Seconds(1)), 1);
  EXPECT_EQ(TickAfter(500 * kCost - kInstant), 0);
  EXPECT_EQ(TickAfter(kInstant), 1);
  // More than a thirty-second of the bound has come.
  SetTallies(53);
  EXPECT_EQ(TickAfter(absl::ZeroDuration()), 0);
  SetTallies(54);
  EXPECT_EQ(TickAfter(absl::ZeroDuration()), 1);
  // The map is almost full.
  SetTallies(95);
  EXPECT_EQ(TickAfter(absl::ZeroDuration()), 1);
  EXPECT_EQ(TickAfter(100 * kCost - kInstant), 0);
  EXPECT_EQ(TickAfter(kInstant), 1);
}

TEST_F(UpkeepTest, WhatGainsIsDoneAtOnceOnlyWhenTheMapIsAlmostFull) {
  AddTally(kEndedThread, 3, 3);
  SetTallies(50);
  EXPECT_EQ(TickAfter(absl::Seconds(1)), 1);
  EXPECT_EQ(TickAfter(kInstant), 0);
  AddTally(kEndedThread, 3, 3);
  SetTallies(95);
  EXPECT_EQ(TickAfter(absl::Seconds(1)), 1);
  EXPECT_EQ(TickAfter(kInstant), 1);
  // That gained nothing.
  EXPECT_EQ(TickAfter(kInstant), 0);
}

TEST_F(UpkeepTest, LostMappingsAreReadAgain) {
  kernel_.Sample(process_id_, kBytes);
  bpf::MappingEvent exec = {};
  exec.kind = bpf::MappingEvent::kExec;
  exec.time = bpf::SimulatedKernel::Now();
  exec.pid = child_.pid();
  kernel_.mappings = {exec};
  recorder_->Pump();
  const auto has_mappings = [&] {
    recorder_->DumpAll(HEAPTAP_DUMP_MANUAL);
    recorder_->Pump();
    return std::ranges::any_of(Dumps(child_.pid()),
                               [](const std::string& dump) { return dump.find(" 0 mappings") == std::string::npos; });
  };
  EXPECT_FALSE(has_mappings());
  kernel_.mappings_lost++;
  // A look that is under way when the clock moves is late, and comes again later.
  for (int i = 0; i < 1000 && !has_mappings(); i++) {
    TickAfter(absl::Seconds(1));
    constexpr int kMilliseconds = 10;
    poll(nullptr, 0, kMilliseconds);
  }
  EXPECT_TRUE(has_mappings());
}

// Most processes end soon.
TEST_F(UpkeepTest, StatesAreSavedOfProcessesThatStay) {
  // Somebody sets the clock back: the age of a process does not follow.
  clock_.AdvanceWall(-absl::Hours(1));
  const size_t before = States();
  TickAfter(absl::Seconds(1) - kInstant);
  EXPECT_EQ(States(), before);
  TickAfter(kInstant);
  EXPECT_EQ(States(), before + 1);
}

// But a recorder that goes on with the recording must know them.
TEST_F(UpkeepTest, StatesOfYoungProcessesAreSavedAtTheEnd) {
  const size_t before = States();
  recorder_->Leave();
  EXPECT_EQ(States(), before + 1);
}

// Something is in the way of the first state. That is said once, and keeps no other state from being saved.
TEST_F(UpkeepTest, AStateThatCannotBeSavedIsSaidOnce) {
  const Child other;
  const uint64_t other_id = kernel_.Enter(other.pid(), "other");
  recorder_->Pump();
  const auto state = [&](uint64_t process_id) { return folder_ / absl::StrCat("recording/", process_id, ".json"); };
  const std::string obstacle = absl::StrCat(state(std::min(process_id_, other_id)), ".new");
  std::filesystem::create_directory(obstacle);
  for (int i = 0; i < 5; i++) TickAfter(absl::Seconds(1));
  EXPECT_TRUE(std::filesystem::exists(state(std::max(process_id_, other_id))));
  EXPECT_THAT(base::FailingTasks(), ElementsAre(Pair("states", testing::_)));
  std::filesystem::remove(obstacle);
  TickAfter(absl::Seconds(1));
  EXPECT_TRUE(std::filesystem::exists(state(std::min(process_id_, other_id))));
  EXPECT_THAT(base::FailingTasks(), IsEmpty());
  const std::vector<std::string> said = absl::StrSplit(testing::internal::GetCapturedStderr(), '\n');
  testing::internal::CaptureStderr();
  const auto mentions = [](const std::string& line) { return absl::StrContains(line, "the states of processes"); };
  EXPECT_EQ(std::ranges::count_if(said, mentions), 2) << "a failure, and its end";
}

}  // namespace
}  // namespace heaptap::recording
