// SPDX-License-Identifier: Apache-2.0
//
// Tests the kernel's books where a map is full, and sweeps, on the real kernel.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/bpf_books_fixture.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/fake_clock.h"

namespace heaptap::bpf {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(BooksTest, AFullMapOfLiveObjectsIsALoss) {
  NEED_BPF(Load({.live = 64}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  const Losses losses = books_->entries().ReadLosses(id);
  EXPECT_EQ(Sum(id).allocated.objects, 64);
  EXPECT_EQ(losses[HEAPTAP_LOSS_LIVE_FULL].events, 36);
  EXPECT_EQ(losses[HEAPTAP_LOSS_LIVE_FULL].weight, 36 * 32);
  ExpectBalanced(id);
  EXPECT_THAT(Kinds(Events()), Contains(HEAPTAP_EVENT_LIVE_FILLING));
}

// While everything is live a sweep is useless; after the frees it helps, and must be requested.
TEST_F(BooksTest, AMapThatWasFullOfLiveObjectsIsUsedAgain) {
  NEED_BPF(Load({.live = 64}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  Events();
  ASSERT_TRUE(books_->Sweep().ok());
  puppet.Do({.kind = Order::kFree, .address = 0x10000, .count = 100});
  constexpr int kMaxLost = 1000;  // many times the expected number
  int lost = 0;
  uint64_t allocated = Sum(id).allocated.objects;
  for (uint64_t address = 0x100000; Sum(id).allocated.objects == allocated; address += 0x10) {
    ASSERT_LT(lost++, kMaxLost) << "the map stays full for ever";
    puppet.Do({.kind = Order::kAlloc, .address = address, .size = 16, .weight = 32});
    const bool is_filling = absl::c_linear_search(Kinds(Events()), HEAPTAP_EVENT_LIVE_FILLING);
    if (!books_->IsSweepDue() && !is_filling) continue;
    ASSERT_TRUE(books_->Sweep().ok());
  }
  ExpectBalanced(id);
}

// Live objects cannot be swept: a new attempt at each sample would keep the collector busy for nothing.
TEST_F(BooksTest, SweepsThatCannotHelpAreRare) {
  NEED_BPF(Load({.live = 1024}));
  Puppet puppet;
  Track(puppet.pid());
  int sweeps = 0;
  for (int i = 0; i < 1100; i++) {
    puppet.Do({.kind = Order::kAlloc, .address = 0x10000 + uint64_t(i) * 16, .size = 16, .weight = 32});
    const bool is_filling = absl::c_linear_search(Kinds(Events()), HEAPTAP_EVENT_LIVE_FILLING);
    if (!books_->IsSweepDue() && !is_filling) continue;
    sweeps++;
    ASSERT_TRUE(books_->Sweep().ok());
  }
  EXPECT_GE(sweeps, 1);
  EXPECT_LE(sweeps, 20);
}

TEST_F(BooksTest, ASweepTakesOnlyWhatWasFreed) {
  NEED_BPF(Load({.live = 128}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  puppet.Do({.kind = Order::kFree, .address = 0x10000, .count = 90});
  EXPECT_EQ(CountEntries("live"), 100);
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("live"), 10);
  EXPECT_EQ(Live(id).objects, 10);
  ExpectBalanced(id);
  puppet.Do({.kind = Order::kAlloc, .address = 0x20000, .size = 16, .weight = 32, .count = 118});
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_FULL].events, 0);
  EXPECT_EQ(Live(id).objects, 128);
}

TEST_F(BooksTest, OneSweepServesManyProcesses) {
  FakeClock clock;
  constexpr uint32_t kEntries = 1024;
  NEED_BPF(Load({.live = kEntries}));
  Puppet puppet;
  const auto forget_one = [&](uint64_t objects) {
    const uint64_t id = Track(puppet.pid());
    puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = objects});
    books_->processes().Untrack(puppet.pid());
    EXPECT_TRUE(books_->Forget({id}).ok());
  };
  EXPECT_FALSE(books_->IsSweepDue()) << "nothing is there";
  forget_one(10);
  clock.Advance(absl::Milliseconds(4999));
  forget_one(10);
  EXPECT_FALSE(books_->IsSweepDue());
  clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(books_->IsSweepDue());
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("live"), 0);
  // One that takes much room does not wait for others, but for the pause after the sweep.
  forget_one(kEntries / 2);
  EXPECT_FALSE(books_->IsSweepDue());
  clock.Advance(absl::Milliseconds(10));
  EXPECT_TRUE(books_->IsSweepDue());
}

TEST_F(BooksTest, AnotherThreadMayForgetAndSweep) {
  NEED_BPF(Load());
  Puppet puppet;
  constexpr int kRounds = 30;
  std::vector<uint64_t> ended;
  for (int i = 0; i < kRounds; i++) {
    ended.push_back(Track(puppet.pid()));
    puppet.Do({.kind = Order::kAlloc, .address = 0x10000, .size = 16, .weight = 32, .count = 10});
    books_->processes().Untrack(puppet.pid());
  }
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x20000, .size = 16, .weight = 32, .count = 10});
  std::atomic<bool> is_over = false;
  std::thread cleaner([&] {
    for (const uint64_t process_id : ended) {
      EXPECT_TRUE(books_->Forget({process_id}).ok());
      EXPECT_TRUE(books_->Sweep().ok());
    }
    is_over = true;
  });
  while (!is_over) {
    Events();
    books_->IsSweepDue();
    EXPECT_EQ(Sum(id).allocated.objects, 10u);
  }
  cleaner.join();
  for (const uint64_t process_id : ended) {
    EXPECT_EQ(Sum(process_id).allocated.objects, 0u);
    EXPECT_EQ(Live(process_id).objects, 0u);
  }
  EXPECT_FALSE(books_->IsSweepDue()) << "nothing is left";
  EXPECT_EQ(Live(id).objects, 10u);
  ExpectBalanced(id);
}

TEST_F(BooksTest, SweepsRaceWithAllocationAndFree) {
  NEED_BPF(Load({.live = 8192}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  // The addresses between which samples were taken and freed.
  constexpr int kBusySweeps = 50;
  int busy_sweeps = 0;
  heaptap_tally last = {};
  while (busy_sweeps < kBusySweeps) {
    puppet.Send({.kind = Order::kRace, .address = 0x10000, .count = 100});
    while (!puppet.HasReplied()) {
      ASSERT_TRUE(books_->Sweep().ok());
      const heaptap_tally now = Sum(id);
      busy_sweeps += now.allocated.objects > last.allocated.objects && now.freed.objects > last.freed.objects;
      last = now;
    }
    ASSERT_EQ(puppet.Wait(), 0);
  }
  ExpectBalanced(id);
  EXPECT_EQ(Live(id).objects, 0);
  // A sample that meets the sweep of its own entry waits for it.
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_FULL].events, 0);
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_MISSED_FREE].events, 0);
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("live"), 0);
}

TEST_F(BooksTest, AFullMapOfTalliesIsALossAndLeavesNothingBehind) {
  NEED_BPF(Load({.tallies = 16}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  EXPECT_EQ(Sum(id).allocated.objects, 16);
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_TALLIES_FULL].events, 84);
  ExpectBalanced(id);
  puppet.End(SIGKILL);
  ASSERT_TRUE(books_->Forget({id}).ok());
  EXPECT_EQ(CountEntries("tallies"), 0);
  EXPECT_EQ(CountEntries("stacks"), 0) << "stacks of samples that found no room for a tally";
}

TEST_F(BooksTest, ASampleIsLostOnce) {
  NEED_BPF(Load({.stacks = 4, .live = 8}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 20});
  const Losses losses = books_->entries().ReadLosses(id);
  EXPECT_EQ(losses[HEAPTAP_LOSS_LIVE_FULL].events, 12);
  EXPECT_EQ(losses[HEAPTAP_LOSS_STACKS_FULL].events, 4);
  EXPECT_EQ(Sum(id).allocated.objects, 8);
  ExpectBalanced(id);
}

TEST_F(BooksTest, AFullMapOfStacksLosesStacksNotSamples) {
  NEED_BPF(Load({.stacks = 16}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 100});
  EXPECT_EQ(Sum(id).allocated.objects, 100);
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_STACKS_FULL].events, 84);
  absl::StatusOr<std::vector<TallyEntry>> tallies = books_->entries().ReadTallies(id);
  ASSERT_TRUE(tallies.ok());
  EXPECT_THAT(*tallies, SizeIs(17));
  for (const TallyEntry& entry : *tallies) {
    if (entry.stack_id == HEAPTAP_NO_STACK) {
      EXPECT_EQ(entry.tally.allocated.objects, 84);
    } else {
      EXPECT_TRUE(books_->entries().ReadStack(entry.stack_id).ok());
    }
  }
  ExpectBalanced(id);
}

// The walk must not reveal what another process's walk has left in the scratch buffer.
TEST_F(BooksTest, AStackPointerNearZeroShowsNobodysStack) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 8});
  const size_t before = books_->entries().ReadTallies(id)->size();
  puppet.Do({.kind = Order::kLostStack, .address = 0x20000, .size = 16, .weight = 32});
  absl::StatusOr<std::vector<TallyEntry>> tallies = books_->entries().ReadTallies(id);
  ASSERT_TRUE(tallies.ok());
  EXPECT_THAT(*tallies, SizeIs(before + 1));
  int lost = 0;
  for (const TallyEntry& entry : *tallies) {
    absl::StatusOr<heaptap_stack> stack = books_->entries().ReadStack(entry.stack_id);
    ASSERT_TRUE(stack.ok()) << stack.status();
    if (stack->frames[0] != reinterpret_cast<uint64_t>(&books_test_site_lost_stack)) continue;
    lost++;
    EXPECT_EQ(stack->count, 1);
    EXPECT_EQ(stack->end, HEAPTAP_STACK_NO_RULE);
  }
  EXPECT_EQ(lost, 1);
}

TEST_F(BooksTest, LostEventsAreCountedWhereTheyAreSeen) {
  NEED_BPF(Load({.events_bytes = 4096}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), true);
  for (int i = 0; i < 40; i++) puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 16, .weight = 16});
  // Each child sent a FORK and an EXIT. A child whose FORK was lost is unknown: that loss belongs to no process.
  uint64_t forks = books_->entries().ReadLosses(0)[HEAPTAP_LOSS_EVENTS_FULL].events;
  EXPECT_GT(forks, 0);
  uint64_t ends = 0;
  uint64_t known = 0;
  for (const heaptap_event& event : Events()) {
    ends += event.kind == HEAPTAP_EVENT_EXIT;
    if (event.kind != HEAPTAP_EVENT_FORK) continue;
    known++;
    ends += books_->entries().ReadLosses(event.process_id)[HEAPTAP_LOSS_EVENTS_FULL].events;
  }
  EXPECT_EQ(forks + known, 40);
  EXPECT_EQ(ends, known);
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_EVENTS_FULL].events, 0);
  EXPECT_EQ(CountEntries("processes"), 1);
}

// An unrecorded process must not be able to crowd out the events of recorded ones.
TEST_F(BooksTest, StrangersCannotFillTheRingBuffer) {
  NEED_BPF(Load({.events_bytes = 65536}));
  Puppet stranger;
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  stranger.Do({.kind = Order::kDump, .address = 0x1000, .count = 10000});
  puppet.Do({.kind = Order::kDump, .address = 0x2000});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(events, Not(IsEmpty()));
  EXPECT_EQ(events.front().process_id, 0);
  EXPECT_EQ(events.back().process_id, id);
  EXPECT_EQ(events.back().argument, 0x2000);
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_EVENTS_FULL].events, 0);
}

TEST_F(BooksTest, AFullMapOfProcessesIsALoss) {
  NEED_BPF(Load({.processes = 1}));
  Puppet puppet;
  Track(puppet.pid(), true);
  puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 16, .weight = 16});
  EXPECT_EQ(books_->entries().ReadLosses(0)[HEAPTAP_LOSS_PROCESSES_FULL].events, 1);
  EXPECT_THAT(Events(), IsEmpty());
}

}  // namespace
}  // namespace heaptap::bpf
