// SPDX-License-Identifier: Apache-2.0
//
// Tests the eBPF programs and the kernel's books on the real kernel.
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_books_fixture.h"
#include "tests/unit/need_bpf.h"

namespace heaptap::bpf {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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
