// SPDX-License-Identifier: Apache-2.0
//
// Tests what the kernel's books hear of the life of processes, on the real kernel.
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_books_fixture.h"
#include "tests/unit/need_bpf.h"

namespace heaptap::bpf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace heaptap::bpf
