// SPDX-License-Identifier: Apache-2.0
//
// Tests, on the real kernel, books that outlive their collector, and processes that the programs record on their own.
#include <bpf/bpf.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/bpf_puppet.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/pins.h"

namespace heaptap::bpf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Small, as each test has its own.
constexpr MapSizes kSizes = {.processes = 64,
                             .stacks = 1024,
                             .live = 4096,
                             .tallies = 1024,
                             .losses = 256,
                             .events_bytes = 65536,
                             .raw_stacks_bytes = 1 << 20};

class AdoptionTest : public testing::Test {
 protected:
  ~AdoptionTest() override {
    Leave();
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  // Begins a recording, or takes one over.
  absl::Status Begin(const MapSizes& sizes = kSizes) {
    absl::StatusOr<Pins> pins = Pins::Open(base_, KernelBooks::Layout());
    if (!pins.ok()) return pins.status();
    pins_ = *std::move(pins);
    recording_ = std::make_unique<Recording>();
    return recording_->LoadOrAdopt(sizes, *pins_);
  }
  // As kill -9 does: without any cleanup.
  void Leave() {
    recording_.reset();
    pins_.reset();
  }
  void TakeOver() {
    const absl::Status status = Begin();
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(books().adopted());
  }

  Books& books() const { return *recording_->books; }
  heaptap_process Process(const Puppet& puppet) const {
    absl::StatusOr<heaptap_process> process = books().processes().Read(puppet.pid());
    EXPECT_TRUE(process.ok()) << process.status();
    return process.value_or(heaptap_process());
  }
  std::vector<heaptap_event> Events(std::optional<uint32_t> kind = {}) const {
    absl::StatusOr<std::vector<heaptap_event>> events = books().TakeEvents();
    EXPECT_TRUE(events.ok()) << events.status();
    std::vector<heaptap_event> wanted;
    for (const heaptap_event& event : events.value_or(std::vector<heaptap_event>())) {
      if (event.kind != HEAPTAP_EVENT_TABLE_WANTED && (!kind.has_value() || event.kind == *kind)) {
        wanted.push_back(event);
      }
    }
    return wanted;
  }
  // All processes are recorded, with the flags that the recorder sets.
  void RecordSystemWide(heaptap_settings settings = {}) const {
    settings.everyone = 1;
    settings.flags = HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED;
    const absl::Status status = books().processes().SetSettings(settings);
    EXPECT_TRUE(status.ok()) << status;
  }
  // The id of the puppet's process, which entered on its own.
  uint64_t Entered(const Puppet& puppet) const { return Process(puppet).identity.id; }

  static void Alloc(const Puppet& puppet, uint64_t address, uint64_t count, uint64_t weight = 1000) {
    EXPECT_EQ(puppet.Do({.kind = Order::kAlloc, .address = address, .size = 100, .weight = weight, .count = count}), 0);
  }
  static void Free(const Puppet& puppet, uint64_t address, uint64_t count) {
    EXPECT_EQ(puppet.Do({.kind = Order::kFree, .address = address, .count = count}), 0);
  }

  const std::string base_ = absl::StrCat("/sys/fs/bpf/heaptap-adoption-test-", getpid());
  std::optional<Pins> pins_;
  std::unique_ptr<Recording> recording_;
};

TEST_F(AdoptionTest, CountsGoOnThroughTheGap) {
  NEED_BPF(Begin());
  EXPECT_FALSE(books().adopted());
  Puppet puppet;
  absl::StatusOr<uint64_t> id = books().processes().Track(puppet.pid(), false, {});
  ASSERT_TRUE(id.ok()) << id.status();
  Alloc(puppet, 0x1000, 10);
  Leave();
  Alloc(puppet, 0x10000, 20);
  Free(puppet, 0x1000, 4);
  ASSERT_NO_FATAL_FAILURE(TakeOver());
  EXPECT_TRUE(books().processes().IsCurrent(puppet.pid(), *id));
  Alloc(puppet, 0x20000, 30);
  Free(puppet, 0x10000, 5);
  const heaptap_tally sum = Sum(books(), *id);
  EXPECT_EQ(sum.allocated.objects, 60u);
  EXPECT_EQ(sum.allocated.weight, 60000u);
  EXPECT_EQ(sum.freed.objects, 9u);
  ExpectBalanced(books(), *id);
  for (const heaptap_loss& loss : books().entries().ReadLosses(*id)) EXPECT_EQ(loss.events, 0u);
}

TEST_F(AdoptionTest, WhatAnEarlierCollectorForgotIsSweptAtOnce) {
  // For collectors that never live as long as a sweep waits.
  FakeClock clock;
  NEED_BPF(Begin());
  Puppet puppet;
  absl::StatusOr<uint64_t> id = books().processes().Track(puppet.pid(), false, {});
  ASSERT_TRUE(id.ok()) << id.status();
  Alloc(puppet, 0x1000, 10);
  books().processes().Untrack(puppet.pid());
  ASSERT_TRUE(books().Forget({*id}).ok());
  EXPECT_FALSE(books().IsSweepDue());
  Leave();
  ASSERT_NO_FATAL_FAILURE(TakeOver());
  EXPECT_TRUE(books().IsSweepDue());
  ASSERT_TRUE(books().Sweep().ok());
  EXPECT_FALSE(books().IsSweepDue());
}

TEST_F(AdoptionTest, AgainAndAgain) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  constexpr uint64_t kTimes = 5;
  for (uint64_t i = 0; i < kTimes; i++) {
    Alloc(puppet, 0x1000 + i * 0x1000, 10);
    Leave();
    Alloc(puppet, 0x100000 + i * 0x1000, 10);
    Free(puppet, 0x100000 + i * 0x1000, 5);
    ASSERT_NO_FATAL_FAILURE(TakeOver());
  }
  const uint64_t id = Entered(puppet);
  EXPECT_EQ(Sum(books(), id).allocated.objects, kTimes * 20);
  EXPECT_EQ(Sum(books(), id).freed.objects, kTimes * 5);
  ExpectBalanced(books(), id);
}

TEST_F(AdoptionTest, EventsWaitForWhoTakesOver) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Leave();
  uint64_t id = 0;
  pid_t pid = 0;
  {
    Puppet puppet;
    pid = puppet.pid();
    Alloc(puppet, 0x1000, 3);
    puppet.End(SIGKILL);
  }
  ASSERT_NO_FATAL_FAILURE(TakeOver());
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_ENTER);
  EXPECT_EQ(static_cast<pid_t>(events[0].tgid), pid);
  id = events[0].process_id;
  EXPECT_EQ(events[1].kind, HEAPTAP_EVENT_EXIT);
  EXPECT_EQ(events[1].process_id, id);
  EXPECT_EQ(events[1].argument, uint64_t{SIGKILL}) << "and not by the OOM killer";
  EXPECT_EQ(events[1].peak_weight, 3000u);
  EXPECT_EQ(Sum(books(), id).allocated.objects, 3u) << "its books stay until they are forgotten";
  EXPECT_TRUE(books().Forget({id}).ok());
  EXPECT_EQ(Sum(books(), id).allocated.objects, 0u);
}

TEST_F(AdoptionTest, NumbersAreNotUsedTwice) {
  // Before, so that no child holds the lock of the recording until it has closed its parent's files.
  Puppet first;
  Puppet second;
  NEED_BPF(Begin());
  absl::StatusOr<uint64_t> one = books().processes().Track(first.pid(), false, {});
  ASSERT_TRUE(one.ok()) << one.status();
  Leave();
  ASSERT_NO_FATAL_FAILURE(TakeOver());
  absl::StatusOr<uint64_t> other = books().processes().Track(second.pid(), false, {});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_GT(*other, *one);
}

TEST_F(AdoptionTest, TheMapsKeepTheirSizes) {
  NEED_BPF(Begin());
  Leave();
  MapSizes other = kSizes;
  other.live = kSizes.live / 2;
  other.events_bytes = kSizes.events_bytes * 2;
  ASSERT_TRUE(Begin(other).ok());
  ASSERT_TRUE(books().adopted());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, kSizes.live * 3 / 8);
  const uint64_t id = Entered(puppet);
  EXPECT_EQ(Live(books(), id).objects, kSizes.live * 3 / 8) << "more than the new size's share of one process";
}

TEST_F(AdoptionTest, WhatWasClosedIsSweptByWhoTakesOver) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 50);
  const uint64_t id = Entered(puppet);
  puppet.End(SIGKILL);
  books().MarkClosed(id);
  Leave();
  ASSERT_NO_FATAL_FAILURE(TakeOver());
  absl::StatusOr<std::set<uint64_t>> closed = books().ReadClosed();
  ASSERT_TRUE(closed.ok()) << closed.status();
  EXPECT_THAT(*closed, ElementsAre(id));
  EXPECT_TRUE(books().Forget(*closed).ok());
  EXPECT_TRUE(books().Sweep().ok());
  EXPECT_EQ(CountEntries("live"), 0u);
  EXPECT_EQ(CountEntries("tallies"), 0u);
  EXPECT_EQ(CountEntries("forgotten"), 0u);
}

TEST_F(AdoptionTest, AResetWhoseEventIsGoneIsKnownToWhoTakesOver) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 50);
  const uint64_t before = Entered(puppet);
  EXPECT_EQ(puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RESET}), 0);
  Alloc(puppet, 0x9000, 20);
  EXPECT_THAT(Events(HEAPTAP_EVENT_RESET), SizeIs(1));
  Leave();
  ASSERT_NO_FATAL_FAILURE(TakeOver());
  EXPECT_THAT(Events(), IsEmpty());
  ASSERT_TRUE(books().processes().IsUnnoticed(before));
  const uint64_t after = Entered(puppet);
  EXPECT_NE(after, before);
  EXPECT_EQ(Process(puppet).flags, HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED);
  EXPECT_TRUE(books().Forget({before}).ok());
  EXPECT_FALSE(books().processes().IsUnnoticed(before));
  EXPECT_EQ(Sum(books(), before).allocated.objects, 0u);
  EXPECT_EQ(Sum(books(), after).allocated.objects, 20u);
  EXPECT_EQ(CountEntries("unnoticed"), 0u);
}

// What a collector left that was killed before it had pinned everything cannot be taken over.
TEST_F(AdoptionTest, HalfOfItIsNotTakenOver) {
  NEED_BPF(Begin());
  pins_->Remove("whole");
  Leave();
  ASSERT_TRUE(Begin().ok());
  EXPECT_FALSE(books().adopted());
  EXPECT_TRUE(pins_->Has("whole"));
}

TEST_F(AdoptionTest, WhatIsMissingIsSaid) {
  NEED_BPF(Begin());
  pins_->Remove("map_live");
  Leave();
  const absl::Status status = Begin();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("map_live"));
}

TEST_F(AdoptionTest, WithoutPinsNothingIsLeft) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 1);
  pins_->RemoveAll();
  Leave();
  Alloc(puppet, 0x2000, 1);
  EXPECT_FALSE(std::filesystem::exists(base_));
  ASSERT_TRUE(Begin().ok());
  EXPECT_FALSE(books().adopted());
  EXPECT_TRUE(absl::IsNotFound(books().processes().Read(puppet.pid()).status()));
}

using SystemWideTest = AdoptionTest;

TEST_F(SystemWideTest, WithoutSettingsNobodyEnters) {
  NEED_BPF(Begin());
  Puppet puppet;
  Alloc(puppet, 0x1000, 1);
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_TRUE(absl::IsNotFound(books().processes().Read(puppet.pid()).status()));
  RecordSystemWide();
  Alloc(puppet, 0x2000, 1);
  EXPECT_EQ(Sum(books(), Entered(puppet)).allocated.objects, 1u);
  ASSERT_TRUE(books().processes().SetSettings({}).ok());
  Puppet late;
  Alloc(late, 0x1000, 1);
  EXPECT_TRUE(absl::IsNotFound(books().processes().Read(late.pid()).status()));
}

TEST_F(SystemWideTest, AProcessEntersWithItsFirstProbe) {
  NEED_BPF(Begin());
  heaptap_settings settings = {};
  settings.limits.max_live = 77;
  settings.limits.max_tallies = 88;
  settings.triggers.first_high_water = 5000;
  settings.triggers.interval_step = 1 << 30;
  settings.triggers.high_water_percent = 10;
  RecordSystemWide(settings);
  Puppet puppet;
  Free(puppet, 0x1000, 1);
  EXPECT_THAT(Events(), IsEmpty()) << "what it frees was never recorded";
  Alloc(puppet, 0x1000, 2);
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_ENTER);
  EXPECT_EQ(static_cast<pid_t>(events[0].tgid), puppet.pid());
  const heaptap_process process = Process(puppet);
  EXPECT_EQ(process.identity.id, events[0].process_id);
  EXPECT_EQ(process.identity.id % 2, 0u) << "the programs' numbers are even";
  EXPECT_EQ(process.flags, HEAPTAP_PROCESS_FOLLOW | HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_ENTERED);
  EXPECT_EQ(process.limits.max_live, 77u);
  EXPECT_EQ(process.limits.max_tallies, 88u);
  Alloc(puppet, 0x2000, 3);
  EXPECT_THAT(Events(HEAPTAP_EVENT_HIGH_WATER), SizeIs(1));
  EXPECT_EQ(Sum(books(), process.identity.id).allocated.objects, 5u) << "the first sample among them";
}

TEST_F(SystemWideTest, ABeginningThatWasNotSeenIsCountedOnce) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 10);
  const uint64_t id = Entered(puppet);
  Processes& processes = books().processes();
  const auto counted = [&](uint64_t process_id) {
    const heaptap_loss loss = books().entries().ReadLosses(process_id)[HEAPTAP_LOSS_BEGINNING];
    return std::pair<int, int>(loss.events, loss.weight);
  };
  EXPECT_TRUE(processes.CountUnseenBeginning(puppet.pid(), id + 2, 15000).ok()) << "other books";
  EXPECT_TRUE(processes.CountUnseenBeginning(getpid(), id, 15000).ok()) << "not recorded";
  EXPECT_EQ(counted(id), std::pair(0, 0));
  EXPECT_TRUE(processes.CountUnseenBeginning(puppet.pid(), id, 15000).ok());
  EXPECT_EQ(counted(id), std::pair(1, 5000)) << "10000 bytes were recorded";
  EXPECT_TRUE(processes.CountUnseenBeginning(puppet.pid(), id, 99000).ok());
  EXPECT_EQ(counted(id), std::pair(1, 5000));

  processes.UncountBeginning(id);
  EXPECT_EQ(counted(id), std::pair(0, 0));

  Puppet other;
  EXPECT_EQ(other.Do({.kind = Order::kStart}), 0);
  EXPECT_TRUE(processes.CountUnseenBeginning(other.pid(), Entered(other), 15000).ok());
  EXPECT_EQ(counted(Entered(other)), std::pair(0, 0)) << "it has fired heaptap:start";
}

TEST_F(SystemWideTest, FiguresAreKept) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 10);
  Free(puppet, 0x1000, 6);
  Free(puppet, 0x1000, 6);  // twice: the probes fire all the same
  Alloc(puppet, 0x9000, 1);
  const heaptap_process process = Process(puppet);
  EXPECT_EQ(process.figures.live_objects, 5u);
  EXPECT_EQ(process.figures.live_weight, 5000u);
  EXPECT_EQ(process.figures.allocated_weight, 11000u);
  EXPECT_EQ(process.figures.peak_weight, 10000u);
  EXPECT_EQ(process.costs.allocations, 11u);
  EXPECT_EQ(process.costs.frees, 12u);
  EXPECT_GT(process.costs.program_time, 0u);
  absl::StatusOr<std::vector<TallyEntry>> tallies = books().entries().ReadTallies(process.identity.id);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  EXPECT_EQ(process.figures.tallies, tallies->size());
}

TEST_F(SystemWideTest, ChildrenHaveFiguresOfTheirOwn) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 10);
  puppet.Do({.kind = Order::kFork, .address = 0x5000, .size = 100, .weight = 2000});
  const std::vector<heaptap_event> exits = Events(HEAPTAP_EVENT_EXIT);
  ASSERT_THAT(exits, SizeIs(1));
  EXPECT_EQ(exits[0].peak_weight, 2000u);
  EXPECT_NE(exits[0].process_id, Entered(puppet));
  EXPECT_EQ(Process(puppet).figures.peak_weight, 10000u);
}

TEST_F(SystemWideTest, ShareOfLiveObjects) {
  NEED_BPF(Begin());
  heaptap_settings settings = {};
  settings.limits.max_live = 100;
  RecordSystemWide(settings);
  Puppet noisy;
  Puppet quiet;
  Alloc(noisy, 0x1000, 150);
  Alloc(quiet, 0x1000, 50);
  const uint64_t id = Entered(noisy);
  EXPECT_EQ(Live(books(), id).objects, 100u);
  EXPECT_EQ(books().entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_SHARE].events, 50u);
  EXPECT_EQ(books().entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_SHARE].weight, 50000u);
  EXPECT_EQ(Live(books(), Entered(quiet)).objects, 50u);
  ExpectBalanced(books(), id);
  // It may use the room of what it frees again.
  Free(noisy, 0x1000, 10);
  Alloc(noisy, 0x90000, 20);
  EXPECT_EQ(Live(books(), id).objects, 100u);
  EXPECT_EQ(books().entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_SHARE].events, 60u);
  ExpectBalanced(books(), id);
}

TEST_F(SystemWideTest, ShareOfContexts) {
  NEED_BPF(Begin());
  heaptap_settings settings = {};
  settings.limits.max_tallies = 20;
  RecordSystemWide(settings);
  Puppet noisy;
  Puppet quiet;
  EXPECT_EQ(noisy.Do({.kind = Order::kDeep, .address = 0x1000, .size = 16, .weight = 16, .count = 50}), 0);
  EXPECT_EQ(quiet.Do({.kind = Order::kDeep, .address = 0x1000, .size = 16, .weight = 16, .count = 10}), 0);
  const uint64_t id = Entered(noisy);
  EXPECT_EQ(books().entries().ReadTallies(id)->size(), 20u);
  EXPECT_EQ(Process(noisy).figures.tallies, 20u);
  EXPECT_EQ(books().entries().ReadLosses(id)[HEAPTAP_LOSS_TALLIES_SHARE].events, 30u);
  ExpectBalanced(books(), id);
  EXPECT_EQ(books().entries().ReadTallies(Entered(quiet))->size(), 10u);
  EXPECT_EQ(books().entries().ReadLosses(Entered(quiet))[HEAPTAP_LOSS_TALLIES_SHARE].events, 0u);
}

// Without a limit of its own a process gets half of what is free: half, then a quarter.
TEST_F(SystemWideTest, OneProcessNeverTakesAllTheRoom) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet noisy;
  Puppet next;
  Alloc(noisy, 0x100000, kSizes.live * 2);
  EXPECT_EQ(Live(books(), Entered(noisy)).objects, kSizes.live / 2);
  Alloc(next, 0x100000, kSizes.live * 2);
  EXPECT_EQ(Live(books(), Entered(next)).objects, kSizes.live / 4);
  for (const Puppet* puppet : {&noisy, &next}) {
    const uint64_t id = Entered(*puppet);
    ExpectBalanced(books(), id);
    EXPECT_EQ(Sum(books(), id).allocated.objects + books().entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_SHARE].events,
              kSizes.live * 2);
    EXPECT_EQ(books().entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_FULL].events, 0u);
  }
}

TEST_F(SystemWideTest, ConfigureChangesWhatAProcessHas) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 10);
  const uint64_t id = Entered(puppet);
  EXPECT_TRUE(absl::IsNotFound(books().processes().Configure(puppet.pid(), id + 2, {.max_live = 1}))) << "other books";
  EXPECT_TRUE(absl::IsNotFound(books().processes().Configure(getpid(), id, {.max_live = 1}))) << "not recorded";
  EXPECT_EQ(Process(puppet).limits.max_live, 0u);
  const ProcessSettings settings = {
      .max_live = 12,
      .max_tallies = 34,
      .triggers = {.first_high_water = 11000, .high_water_percent = 50, .interval = 5000}};
  ASSERT_TRUE(books().processes().Configure(puppet.pid(), id, settings).ok());
  EXPECT_EQ(Process(puppet).limits.max_tallies, 34u);
  Events();
  Alloc(puppet, 0x9000, 5);
  EXPECT_EQ(Live(books(), id).objects, 12u);
  const std::vector<heaptap_event> marks = Events(HEAPTAP_EVENT_HIGH_WATER);
  ASSERT_THAT(marks, SizeIs(1));
  EXPECT_EQ(marks[0].argument, 11000u);
  // Intervals count from the time of the request: at 10000, so the first is at 15000.
  ASSERT_TRUE(books().processes().Configure(puppet.pid(), id, {.triggers = {.interval = 5000}}).ok());
  Alloc(puppet, 0xa000, 2);
  EXPECT_THAT(Events(HEAPTAP_EVENT_INTERVAL), IsEmpty()) << "14000";
  Alloc(puppet, 0xb000, 1);
  EXPECT_THAT(Events(HEAPTAP_EVENT_INTERVAL), SizeIs(1));
}

TEST_F(SystemWideTest, WhoIsIgnoredWritesNothingMore) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  Alloc(puppet, 0x1000, 10);
  const uint64_t id = Entered(puppet);
  ASSERT_TRUE(books().processes().Configure(puppet.pid(), id, {.ignored = true}).ok());
  Events();
  Alloc(puppet, 0x9000, 10);
  Free(puppet, 0x1000, 5);
  EXPECT_EQ(Sum(books(), id).allocated.objects, 10u);
  EXPECT_EQ(Sum(books(), id).freed.objects, 0u);
  EXPECT_THAT(Events(), IsEmpty()) << "it does not enter again";
  // Its children are examined anew.
  const int64_t child = puppet.Do({.kind = Order::kFork, .address = 0x5000, .size = 16, .weight = 16});
  const std::vector<heaptap_event> entered = Events(HEAPTAP_EVENT_ENTER);
  ASSERT_THAT(entered, SizeIs(1));
  EXPECT_EQ(entered[0].tgid, child);
  // And so is its next image.
  puppet.Send({.kind = Order::kExec});
  const absl::Time bound = absl::Now() + absl::Seconds(60);
  while (!absl::IsNotFound(books().processes().Read(puppet.pid()).status())) {
    ASSERT_LT(absl::Now(), bound);
    std::this_thread::yield();
  }
}

TEST_F(SystemWideTest, TalliesOfThreadsThatEndedAreFolded) {
  NEED_BPF(Begin());
  RecordSystemWide();
  Puppet puppet;
  std::vector<uint32_t> tids;
  constexpr uint64_t kThreads = 4;
  for (uint64_t i = 0; i < kThreads; i++) {
    tids.push_back(static_cast<uint32_t>(
        puppet.Do({.kind = Order::kNamedEnd, .address = 0x1000 + i * 16, .size = 100, .weight = 1000})));
  }
  const uint64_t id = Entered(puppet);
  Free(puppet, 0x1000, kThreads - 1);  // the last one's lives
  const heaptap_tally before = Sum(books(), id);
  absl::StatusOr<std::vector<TallyEntry>> tallies = books().entries().ReadTallies(id);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  ASSERT_THAT(*tallies, SizeIs(kThreads));
  const uint64_t stack = tallies->front().stack_id;
  const uint32_t threads = Process(puppet).threads_begun;
  EXPECT_EQ(threads, kThreads - 1) << "since it entered, in its first such thread";
  const absl::Status visited = books().entries().VisitTallies(
      [&](uint64_t, const TallyEntry&) { EXPECT_FALSE(books().entries().folding().TryLock()) << "a reader holds it"; });
  ASSERT_TRUE(visited.ok()) << visited;
  for (const TallyEntry& entry : *tallies) {
    ASSERT_EQ(entry.stack_id, stack) << "one stack, so that there is something to add up";
    const absl::MutexLock lock(&books().entries().folding());
    EXPECT_FALSE(books().Fold(puppet.pid(), id, entry, threads - 1)) << "another thread has begun, perhaps this one";
    EXPECT_EQ(books().Fold(puppet.pid(), id, entry, threads), entry.tid != tids.back());
  }
  tallies = books().entries().ReadTallies(id);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  ASSERT_THAT(*tallies, SizeIs(2));
  for (const TallyEntry& entry : *tallies) {
    EXPECT_TRUE(entry.tid == 0 || entry.tid == tids.back());
    EXPECT_EQ(entry.tally.allocated.objects, entry.tid == 0 ? kThreads - 1 : 1);
    if (entry.tid == 0) {
      const absl::MutexLock lock(&books().entries().folding());
      EXPECT_FALSE(books().Fold(puppet.pid(), id, entry, threads)) << "it is folded";
    }
  }
  const heaptap_tally after = Sum(books(), id);
  EXPECT_EQ(memcmp(&before, &after, sizeof(before)), 0);
  EXPECT_EQ(Process(puppet).figures.tallies, 2u);
  ExpectBalanced(books(), id);
  // Live objects are still freed in their own thread's tally.
  Free(puppet, 0x1000 + (kThreads - 1) * 16, 1);
  EXPECT_EQ(Sum(books(), id).freed.objects, kThreads);
  ExpectBalanced(books(), id);
}

}  // namespace
}  // namespace heaptap::bpf
