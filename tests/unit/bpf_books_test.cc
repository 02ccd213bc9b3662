// SPDX-License-Identifier: Apache-2.0
//
// Tests the eBPF programs and the kernel's books on the real kernel.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_puppet.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/bpf/books.h"

namespace heaptap::bpf {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BooksTest : public ::testing::Test {
 protected:
  // Maps of other sizes belong to one test. Those of the default sizes are shared, since detaching takes half a second.
  absl::Status Load(const MapSizes& sizes) {
    absl::Status status = own_.Load(sizes);
    books_ = own_.books.get();
    return status;
  }
  absl::Status Load() {
    if (shared_ == nullptr) {
      shared_ = new Recording;
      if (absl::Status status = shared_->Load({}); !status.ok()) {
        delete std::exchange(shared_, nullptr);
        return status;
      }
    }
    books_ = shared_->books.get();
    return absl::OkStatus();
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  void TearDown() override {
    if (books_ == nullptr) return;
    Events();
    for (const pid_t pid : pids_) books_->processes().Untrack(pid);
    for (const uint64_t id : ids_) EXPECT_TRUE(books_->Forget({id}).ok());
    EXPECT_TRUE(books_->Sweep().ok());
  }

  uint64_t Track(pid_t pid, bool follow = false, const Triggers& triggers = {}) {
    absl::StatusOr<uint64_t> id = books_->processes().Track(pid, follow, triggers);
    EXPECT_TRUE(id.ok()) << id.status();
    pids_.insert(pid);
    ids_.insert(id.value_or(0));
    return id.value_or(0);
  }

  heaptap_tally Sum(uint64_t process_id) { return bpf::Sum(*books_, process_id); }
  LiveTotals Live(uint64_t process_id) { return bpf::Live(*books_, process_id); }
  void ExpectBalanced(uint64_t process_id) { bpf::ExpectBalanced(*books_, process_id); }

  std::vector<heaptap_event> Events() {
    absl::StatusOr<std::vector<heaptap_event>> events = books_->TakeEvents();
    EXPECT_TRUE(events.ok()) << events.status();
    if (!events.ok()) return {};
    for (const heaptap_event& event : *events) {
      pids_.insert(static_cast<pid_t>(event.tgid));
      if (event.process_id != 0) ids_.insert(event.process_id);
    }
    return *std::move(events);
  }

  std::vector<uint32_t> Kinds(const std::vector<heaptap_event>& events) {
    std::vector<uint32_t> kinds;
    for (const heaptap_event& event : events) kinds.push_back(event.kind);
    return kinds;
  }

  Books* books_ = nullptr;

 private:
  Recording own_;
  static Recording* shared_;
  // All processes of the test, to clean up.
  std::set<pid_t> pids_;
  std::set<uint64_t> ids_;
};

Recording* BooksTest::shared_ = nullptr;

TEST_F(BooksTest, SamplesOfTrackedProcessesOnly) {
  NEED_BPF(Load());
  Puppet tracked;
  Puppet other;
  const uint64_t id = Track(tracked.pid());
  tracked.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000});
  other.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 100, .weight = 1000});
  absl::StatusOr<std::vector<TallyEntry>> tallies = books_->entries().ReadTallies(id);
  ASSERT_TRUE(tallies.ok()) << tallies.status();
  ASSERT_THAT(*tallies, SizeIs(1));
  EXPECT_EQ((*tallies)[0].tid, tracked.pid());
  EXPECT_EQ((*tallies)[0].tally.allocated.objects, 1);
  EXPECT_EQ((*tallies)[0].tally.allocated.bytes, 100);
  EXPECT_EQ((*tallies)[0].tally.allocated.weight, 1000);
  EXPECT_EQ((*tallies)[0].tally.allocated.weighted_objects, 10 << HEAPTAP_OBJECT_FRACTION_BITS);
  EXPECT_EQ((*tallies)[0].tally.freed.objects, 0);
  EXPECT_EQ(Live(id).objects, 1);
  EXPECT_EQ(CountEntries("live"), 1);

  absl::StatusOr<heaptap_stack> stack = books_->entries().ReadStack((*tallies)[0].stack_id);
  ASSERT_TRUE(stack.ok()) << stack.status();
  EXPECT_GT(stack->count, 1);
  EXPECT_EQ(stack->frames[0], reinterpret_cast<uint64_t>(&books_test_site_alloc));
  EXPECT_TRUE(absl::IsNotFound(books_->entries().ReadStack(HEAPTAP_NO_STACK).status()));
}

TEST_F(BooksTest, FreeTakesTheObjectOut) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 10});
  puppet.Do({.kind = Order::kFree, .address = 0x1000, .count = 4});
  puppet.Do({.kind = Order::kFree, .address = 0x1000, .count = 4});  // twice: nothing is there
  puppet.Do({.kind = Order::kFree, .address = 0x999990});            // never sampled
  const heaptap_tally sum = Sum(id);
  EXPECT_EQ(sum.allocated.objects, 10);
  EXPECT_EQ(sum.freed.objects, 4);
  EXPECT_EQ(sum.freed.bytes, 400);
  EXPECT_EQ(sum.freed.weight, 4000);
  EXPECT_EQ(sum.freed.weighted_objects, 40 << HEAPTAP_OBJECT_FRACTION_BITS);
  EXPECT_EQ(Live(id).objects, 6);
  ExpectBalanced(id);
  for (const heaptap_loss& loss : books_->entries().ReadLosses(id)) EXPECT_EQ(loss.events, 0);
}

TEST_F(BooksTest, NamesOfThreads) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  EXPECT_TRUE(absl::IsNotFound(books_->entries().ReadThreadName(id, puppet.pid()).status()));
  puppet.Do({.kind = Order::kName});
  absl::StatusOr<ThreadName> given = books_->entries().ReadThreadName(id, puppet.pid());
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->name, "thread");
  EXPECT_TRUE(given->given);

  const int64_t tid = puppet.Do({.kind = Order::kNamedEnd, .address = 0x1000, .size = 16, .weight = 16});
  // The tracepoint runs after join has been woken.
  absl::StatusOr<ThreadName> kept = books_->entries().ReadThreadName(id, static_cast<uint32_t>(tid));
  for (; absl::IsNotFound(kept.status()); kept = books_->entries().ReadThreadName(id, static_cast<uint32_t>(tid)))
    usleep(1000);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->name, "worker");
  EXPECT_FALSE(kept->given);

  const pid_t main_thread = puppet.pid();
  puppet.End(SIGKILL);
  given = books_->entries().ReadThreadName(id, main_thread);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->name, "thread") << "what the program said stays when the thread ends";
}

TEST_F(BooksTest, ResetBeginsNewBooks) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id =
      Track(puppet.pid(), false, {.first_high_water = 4096, .high_water_percent = 10, .interval = 4096});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 3});
  Events();
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RESET, .weight = 7});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_RESET));
  EXPECT_EQ(events[0].argument, id);
  const uint64_t new_id = events[0].process_id;
  EXPECT_NE(new_id, id);
  EXPECT_TRUE(books_->processes().IsCurrent(puppet.pid(), new_id));
  heaptap_dump_request request;
  memcpy(&request, events[0].memory, sizeof(request));
  EXPECT_EQ(request.argument, 7);
  // For a collector that has not seen the event.
  const auto ended = books_->processes().ReadUnnoticed();
  ASSERT_TRUE(ended.ok()) << ended.status();
  ASSERT_THAT(*ended, ElementsAre(testing::Key(id)));
  EXPECT_EQ(ended->at(id).tgid, puppet.pid());
  EXPECT_EQ(ended->at(id).cause, EndedBooks::Cause::kReset);

  puppet.Do({.kind = Order::kFree, .address = 0x1000});  // from before the reset: no longer recorded
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 200, .weight = 200});
  EXPECT_EQ(Sum(id).allocated.objects, 3);
  EXPECT_EQ(Sum(id).freed.objects, 0);
  EXPECT_EQ(Sum(new_id).allocated.objects, 1);
  EXPECT_EQ(Live(new_id).bytes, 200);
  ExpectBalanced(new_id);
  EXPECT_THAT(Events(), IsEmpty()) << "triggers count from the reset on";
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 4000, .weight = 4000});
  EXPECT_THAT(Kinds(Events()), ElementsAre(HEAPTAP_EVENT_HIGH_WATER, HEAPTAP_EVENT_INTERVAL));
}

TEST_F(BooksTest, ResetOfAProcessThatIsNotRecorded) {
  NEED_BPF(Load());
  Puppet puppet;
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RESET});
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 1});
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(BooksTest, RecordsOfSamples) {
  constexpr uint32_t kCapacity = 8;
  NEED_BPF(Load({.records = kCapacity}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x100, .size = 16, .weight = 16});  // not requested yet
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 3});
  puppet.Do({.kind = Order::kFree, .address = 0x1010});
  puppet.Do({.kind = Order::kFree, .address = 0x100});
  absl::StatusOr<std::vector<heaptap_record>> records = books_->entries().ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_THAT(*records, SizeIs(3));
  for (size_t i = 0; i < 3; i++) {
    const heaptap_record& record = (*records)[i];
    EXPECT_EQ(record.address, 0x1000 + 16 * i);
    EXPECT_EQ(record.size, 100);
    EXPECT_EQ(record.tid, puppet.pid());
    EXPECT_TRUE(books_->entries().ReadStack(record.stack_id).ok());
    EXPECT_EQ(record.free_time != 0, i == 1);
  }
  const heaptap_record& freed = (*records)[1];
  EXPECT_GE(freed.free_time, freed.time);
  EXPECT_EQ(freed.free_tid, puppet.pid());
  absl::StatusOr<heaptap_stack> stack = books_->entries().ReadStack(freed.free_stack_id);
  ASSERT_TRUE(stack.ok()) << stack.status();
  EXPECT_EQ(stack->frames[0], reinterpret_cast<uint64_t>(&books_test_site_free));
  ExpectBalanced(id);

  // The oldest go; a free of an object whose record is gone touches no other's.
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 64, .weight = 64, .count = kCapacity});
  puppet.Do({.kind = Order::kFree, .address = 0x1000});
  records = books_->entries().ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_THAT(*records, SizeIs(kCapacity));
  for (size_t i = 0; i < kCapacity; i++) {
    EXPECT_EQ((*records)[i].address, 0x2000 + 16 * i);
    EXPECT_EQ((*records)[i].free_time, 0);
  }

  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 0});
  puppet.Do({.kind = Order::kAlloc, .address = 0x3000, .size = 64, .weight = 64});
  records = books_->entries().ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->back().address, 0x2000 + 16 * (kCapacity - 1));
}

// If there is no room for a sample, no free could complete its record.
TEST_F(BooksTest, LostSamplesLeaveNoRecord) {
  NEED_BPF(Load({.live = 4, .records = 64}));
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAsk, .size = HEAPTAP_ASK_RECORD, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000, .count = 10});
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_LIVE_FULL].events, 6);
  absl::StatusOr<std::vector<heaptap_record>> records = books_->entries().ReadRecords(id);
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(*records, SizeIs(4));
  ExpectBalanced(id);
}

TEST_F(BooksTest, UntrackedProcessesWriteNothingMore) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 16, .weight = 16});
  EXPECT_TRUE(books_->processes().IsCurrent(puppet.pid(), id));
  EXPECT_FALSE(books_->processes().Track(puppet.pid(), false, {}).ok()) << "one process, one book";
  books_->processes().Untrack(puppet.pid());
  EXPECT_FALSE(books_->processes().IsCurrent(puppet.pid(), id));
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 16, .weight = 16});
  puppet.Do({.kind = Order::kFree, .address = 0x1000});
  EXPECT_EQ(Sum(id).allocated.objects, 1);
  EXPECT_EQ(Live(id).objects, 1);
  EXPECT_NE(Track(puppet.pid()), id) << "a process id is never used twice";
}

TEST_F(BooksTest, TheSameAddressTwiceIsAMissedFree) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 100, .weight = 1000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 50, .weight = 500});
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_MISSED_FREE].events, 1);
  EXPECT_EQ(Sum(id).allocated.objects, 2);
  EXPECT_EQ(Sum(id).freed.objects, 1);
  EXPECT_EQ(Live(id).bytes, 50);
  ExpectBalanced(id);
}

TEST_F(BooksTest, ImpossibleSamplesAreLosses) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 0, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 2, .weight = 1});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 1, .weight = uint64_t{1} << 48});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = ~uint64_t{0}, .weight = ~uint64_t{0}});
  EXPECT_EQ(books_->entries().ReadLosses(id)[HEAPTAP_LOSS_BAD_SAMPLE].events, 4);
  EXPECT_EQ(Sum(id).allocated.objects, 0);
  EXPECT_EQ(Live(id).objects, 0);
}

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

TEST_F(BooksTest, ForgetLeavesNothing) {
  NEED_BPF(Load());
  Puppet puppet;
  Puppet other;
  const uint64_t id = Track(puppet.pid());
  const uint64_t other_id = Track(other.pid());
  puppet.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 1000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x100000, .size = 16, .weight = 32, .count = 20000});
  puppet.Do({.kind = Order::kFree, .address = 0x100000, .count = 10000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x100000, .size = 0, .weight = 32});
  other.Do({.kind = Order::kDeep, .address = 0x10000, .size = 16, .weight = 32, .count = 10});
  puppet.End(SIGKILL);
  ASSERT_TRUE(books_->Forget({id}).ok());
  ASSERT_TRUE(books_->Sweep().ok());
  EXPECT_EQ(CountEntries("forgotten"), 0);
  EXPECT_EQ(Sum(id).allocated.objects, 0);
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(CountEntries("processes"), 1);
  EXPECT_EQ(CountEntries("tallies"), 10);
  EXPECT_EQ(CountEntries("stacks"), 10);
  EXPECT_EQ(CountEntries("live"), 10);
  EXPECT_EQ(CountEntries("losses"), HEAPTAP_LOSS_REASONS - HEAPTAP_NO_LOSS - 1) << "those of no process";
  ExpectBalanced(other_id);
}

TEST_F(BooksTest, ExitEndsAProcess) {
  NEED_BPF(Load());
  Puppet puppet;
  const pid_t pid = puppet.pid();
  const uint64_t id = Track(pid);
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 16, .weight = 32});
  puppet.End(SIGKILL);
  EXPECT_FALSE(books_->processes().IsCurrent(pid, id));
  EXPECT_EQ(CountEntries("processes"), 0);
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].process_id, id);
  EXPECT_EQ(events[0].tgid, pid);
  EXPECT_EQ(events[0].argument, SIGKILL);
  EXPECT_EQ(Live(id).objects, 1) << "the books outlive the process";
}

TEST_F(BooksTest, AForkedChildHasBooksOfItsOwnIfItIsFollowed) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), true);
  const auto child =
      static_cast<uint32_t>(puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 100, .weight = 200}));
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_FORK, HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].tgid, child);
  EXPECT_EQ(events[0].argument, id);
  const uint64_t child_id = events[0].process_id;
  EXPECT_NE(child_id, id);
  EXPECT_EQ(events[1].process_id, child_id);
  EXPECT_EQ(events[1].argument, 7 << 8);
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(Live(child_id).bytes, 100);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, AForkedChildIsNotRecordedIfItIsNotFollowed) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), false);
  puppet.Do({.kind = Order::kFork, .address = 0x1000, .size = 100, .weight = 200});
  EXPECT_THAT(Events(), IsEmpty());
  EXPECT_EQ(Live(id).objects, 0);
  EXPECT_EQ(CountEntries("live"), 0);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, AVforkedChildWritesInItsParentsBooks) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), false);
  puppet.Do({.kind = Order::kVforkExit, .address = 0x1000, .size = 100, .weight = 200});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].process_id, 0) << "no books end";
  EXPECT_EQ(Live(id).bytes, 100) << "the memory is the parent's";
  puppet.Do({.kind = Order::kFree, .address = 0x1000});
  EXPECT_EQ(Live(id).bytes, 0);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, AVforkedChildLeavesItsParentsBooksWithExec) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), true);
  const auto child =
      static_cast<uint32_t>(puppet.Do({.kind = Order::kVforkExec, .address = 0x1000, .size = 100, .weight = 200}));
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXEC, HEAPTAP_EVENT_EXIT));
  EXPECT_EQ(events[0].tgid, child);
  EXPECT_NE(events[0].process_id, id);
  EXPECT_EQ(events[0].argument, 0) << "no books end";
  EXPECT_EQ(events[1].process_id, events[0].process_id);
  EXPECT_EQ(Live(id).bytes, 100);
  EXPECT_EQ(CountEntries("processes"), 1);
}

TEST_F(BooksTest, ExecBeginsNewBooks) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id = Track(puppet.pid(), false);
  puppet.Send({.kind = Order::kExec});
  EXPECT_EQ(puppet.Wait(), -1) << "the socket closes with the exec";
  std::vector<heaptap_event> events = Events();
  for (; events.empty(); events = Events()) usleep(1000);
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_EXEC));
  EXPECT_EQ(events[0].argument, id);
  EXPECT_NE(events[0].process_id, id);
  EXPECT_FALSE(books_->processes().IsCurrent(puppet.pid(), id));
  EXPECT_TRUE(books_->processes().IsCurrent(puppet.pid(), events[0].process_id));
  const auto ended = books_->processes().ReadUnnoticed();
  ASSERT_TRUE(ended.ok()) << ended.status();
  ASSERT_THAT(*ended, ElementsAre(testing::Key(id)));
  EXPECT_EQ(ended->at(id).cause, EndedBooks::Cause::kExec);
}

TEST_F(BooksTest, AStartBringsTheControlBlock) {
  NEED_BPF(Load());
  char control[sizeof(heaptap_control)];
  for (size_t i = 0; i < sizeof(control); i++) control[i] = static_cast<char>(i + 1);
  Puppet puppet;  // has a copy at the same address
  const uint64_t id = Track(puppet.pid());
  puppet.Do({.kind = Order::kStart, .address = reinterpret_cast<uint64_t>(control)});
  puppet.Do({.kind = Order::kStart, .address = 8});
  const std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_START, HEAPTAP_EVENT_START));
  EXPECT_EQ(events[0].process_id, id);
  EXPECT_EQ(memcmp(events[0].memory, control, sizeof(control)), 0);
  EXPECT_THAT(std::vector<uint8_t>(events[1].memory, events[1].memory + sizeof(heaptap_control)), ::testing::Each(0));
}

TEST_F(BooksTest, TriggersSendOneEventForEachStep) {
  NEED_BPF(Load());
  Puppet puppet;
  const uint64_t id =
      Track(puppet.pid(), false, {.first_high_water = 1000, .high_water_percent = 50, .interval = 10000});
  puppet.Do({.kind = Order::kAlloc, .address = 0x1000, .size = 10, .weight = 100, .count = 9});
  EXPECT_THAT(Events(), IsEmpty());
  puppet.Do({.kind = Order::kAlloc, .address = 0x2000, .size = 10, .weight = 100});
  std::vector<heaptap_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HEAPTAP_EVENT_HIGH_WATER));
  EXPECT_EQ(events[0].argument, 1000);
  EXPECT_EQ(events[0].process_id, id);
  puppet.Do({.kind = Order::kFree, .address = 0x1000, .count = 9});
  puppet.Do({.kind = Order::kAlloc, .address = 0x3000, .size = 10, .weight = 100, .count = 13});
  EXPECT_THAT(Events(), IsEmpty()) << "1400 live";
  puppet.Do({.kind = Order::kAlloc, .address = 0x4000, .size = 10, .weight = 100});
  EXPECT_THAT(Kinds(Events()), ElementsAre(HEAPTAP_EVENT_HIGH_WATER));
  puppet.Do({.kind = Order::kAlloc, .address = 0x5000, .size = 10, .weight = 50000});
  EXPECT_THAT(Kinds(Events()), ElementsAre(HEAPTAP_EVENT_HIGH_WATER, HEAPTAP_EVENT_INTERVAL));
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

TEST(Losses, HaveNamesAndDescriptionsOfTheirOwn) {
  std::set<std::string> names;
  std::set<std::string> descriptions;
  for (uint32_t reason = 0; reason < HEAPTAP_LOSS_REASONS; reason++) {
    names.emplace(LossName(reason));
    descriptions.emplace(LossDescription(reason));
  }
  EXPECT_THAT(names, SizeIs(HEAPTAP_LOSS_REASONS));
  EXPECT_THAT(descriptions, SizeIs(HEAPTAP_LOSS_REASONS));
  EXPECT_THAT(names, ::testing::Not(Contains("")));
  EXPECT_THAT(descriptions, ::testing::Not(Contains("")));
}

}  // namespace
}  // namespace heaptap::bpf
