// SPDX-License-Identifier: Apache-2.0
//
// Tests stacks that wait for an unwind table, on the real kernel.
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/need_bpf.h"
#include "tests/unit/support/child.h"
#include "tests/unit/support/fake_clock.h"
#include "tests/unit/support/simulated_books.h"
#include "tests/unit/unwind_tables_fixture.h"
#include "userspace/base/clock.h"
#include "userspace/tables/raw_stacks.h"

namespace heaptap::recording {
namespace {

// A file that a process of a user maps who has no time left: its table is not read.
TEST_F(UnwindTablesTest, AStackDoesNotWaitForEver) {
  if (getuid() != 0) GTEST_SKIP() << "needs files of two users";
  NEED_BPF(Load());
  FakeClock clock;
  worker::Errands errands(worker::Urgency::kBackground, {}, absl::ZeroDuration());
  UnwindTables tables(MeansWith(errands), 100 * kNode);
  MappedImage late(Small(2));
  const Child of_user([] { return setuid(1234) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; });
  ASSERT_TRUE(of_user.is_ready());
  tables.Enter(KeyOf(late), of_user.pid(), late.mapping);
  WaitUntil(errands, [&] { return tables.tables_read() == 1; });
  ASSERT_TRUE(tables.IsBeingRead(late.mapping));
  const auto space = std::make_shared<AddressSpace>();
  space->mappings.Add(late.mapping);
  bpf::SimulatedKernel kernel;
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  RawStacks stacks(books->unwind(), tables);
  constexpr uint64_t kProcess = 42;
  uint64_t process = kProcess;
  // Each with other memory, an eighth of all that may wait.
  uint64_t last_id = 0;
  const auto finish = [&] {
    bpf::RawStack raw = {.header = {.process_id = process, .stack_id = ++last_id}, .memory = {}};
    raw.header.frame.rip = raw.header.stack.frames[0] = late.At(kCode);
    raw.header.stack.count = 1;
    // The frame pointer leads to the address of another call in the file.
    raw.header.memory_begin = raw.header.frame.rsp = 0x10000;
    raw.header.frame.rbp = 0x10000 + sizeof(uint64_t);
    std::vector<uint8_t> memory(RawStacks::kMaxBytes / 8);
    const uint64_t other_call = late.At(kCode) + 1;
    memcpy(memory.data() + 2 * sizeof(other_call), &other_call, sizeof(other_call));
    raw.memory = unwind::StackCopy(memory);
    kernel.stacks[last_id] = {.count = 1, .end = HEAPTAP_STACK_UNFINISHED, .frames = {raw.header.frame.rip}};
    stacks.Finish(raw, getpid(), space);
    return kernel.stacks[last_id].end;
  };
  EXPECT_EQ(finish(), HEAPTAP_STACK_UNFINISHED);
  EXPECT_TRUE(stacks.IsWorthWaiting(kProcess, base::Now()));
  EXPECT_FALSE(stacks.IsWorthWaiting(kProcess, base::Now() + RawStacks::kPatience));
  // Others find no room, and end where their table is missing.
  for (int i = 0; i < 3; i++) EXPECT_EQ(finish(), HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(finish(), HEAPTAP_STACK_NO_TABLE);
  EXPECT_EQ(kernel.stacks[last_id].count, 1);
  // Another process may have as much as is left.
  process = kProcess + 1;
  for (int i = 0; i < 2; i++) EXPECT_EQ(finish(), HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(finish(), HEAPTAP_STACK_NO_TABLE);
  // Another table has been read.
  const auto retry = [&](uint64_t words) {
    MappedImage other(Small(words));
    tables.Enter(KeyOf(other), getpid(), other.mapping);
    WaitUntil(errands, [&] { return !tables.IsBeingRead(other.mapping); });
    stacks.Retry();
  };
  clock.Advance(RawStacks::kMaxWait - absl::Nanoseconds(1));
  retry(3);
  EXPECT_TRUE(stacks.IsWaiting(kProcess));
  clock.Advance(absl::Nanoseconds(1));
  retry(4);
  EXPECT_FALSE(stacks.IsWaiting(kProcess));
  EXPECT_TRUE(stacks.empty());
  for (const auto& [id, stack] : kernel.stacks) EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_TABLE) << id;
}

// The collector missed the mapping, or the kernel asked for the table of another file of the stack.
TEST_F(UnwindTablesTest, AStackWaitsForTheLookAtAFile) {
  NEED_BPF(Load());
  const MappedImage image(Small(2));
  const auto space = std::make_shared<AddressSpace>();
  space->mappings.Add(image.mapping);
  bpf::SimulatedKernel kernel;
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  RawStacks stacks(books->unwind(), *tables_);
  constexpr uint64_t kProcess = 42, kStack = 1;
  bpf::RawStack raw = {.header = {.process_id = kProcess, .stack_id = kStack}, .memory = {}};
  raw.header.frame.rip = raw.header.stack.frames[0] = image.At(kCode);
  raw.header.stack.count = 1;
  kernel.stacks[kStack] = {.count = 1, .end = HEAPTAP_STACK_UNFINISHED, .frames = {raw.header.frame.rip}};
  stacks.Finish(raw, getpid(), space);
  EXPECT_TRUE(stacks.IsWaiting(kProcess));
  EXPECT_FALSE(tables_->HasFileOf(image.mapping));
  Settle();
  stacks.Retry();
  EXPECT_FALSE(stacks.IsWaiting(kProcess));
  EXPECT_EQ(FindRule(image, kCode), Words(2));
  EXPECT_NE(kernel.stacks[kStack].end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_NE(kernel.stacks[kStack].end, HEAPTAP_STACK_NO_TABLE);
}

// Its frames ask all at once, and so do its other stacks.
TEST_F(UnwindTablesTest, AMappingWithoutAFileIsLookedAtOnce) {
  NEED_BPF(Load());
  FakeClock clock;
  const elf::Mapping mapping = MappedImage(Small(2)).mapping;
  EXPECT_TRUE(tables_->EnterMapped(getpid(), mapping));
  EXPECT_TRUE(tables_->EnterMapped(getpid(), mapping));
  Settle();
  EXPECT_EQ(tables_->tables_read(), 1u);
  EXPECT_FALSE(tables_->EnterMapped(getpid(), mapping));
  clock.Advance(absl::Seconds(1));
  EXPECT_TRUE(tables_->EnterMapped(getpid(), mapping));
  Settle();
}

}  // namespace
}  // namespace heaptap::recording
