// SPDX-License-Identifier: Apache-2.0
//
// Heaps of a program in the books (heaptap:heap_alloc, heaptap:heap_free), on the simulated kernel.
#include <cstdint>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

class HostHeaps : public MachineTest {};

constexpr uint64_t kTag = uint64_t{5} << 48;
constexpr uint32_t kNameId = 0x1234;

TEST_F(HostHeaps, AHeapHasATallyAndANameOfItsOwn) {
  const uint64_t id = Track().identity.id;
  ASSERT_TRUE(kernel.WriteMemory(kArguments, "pool\0", 5));
  const uint32_t heap_tid = HEAPTAP_HEAP_TID | kNameId;
  Alloc({.address = 0x1000, .heap = kTag | kNameId});
  Alloc({.address = 0x1000, .stack = 2});  // the pool took it from malloc
  RunAs(kPid, kPid + 1);
  Alloc({.address = 0x2000, .heap = kTag | kNameId});
  EXPECT_EQ(LiveObjects(id).objects, 3);
  const heaptap_live* entry = Live(0x1000 ^ kTag);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->tid, heap_tid);
  EXPECT_EQ(Tally(entry->stack_id, heap_tid)->allocated.objects, 2);
  EXPECT_EQ(Tally(entry->stack_id, heap_tid)->allocated.weight, 1280);
  const auto* name = kernel.Find<heaptap_thread_name>("names", heaptap_thread_key{id, heap_tid, 0});
  ASSERT_NE(name, nullptr);
  EXPECT_STREQ(name->name, "pool");
  EXPECT_EQ(name->given, 1);
  Free(0x1000);
  EXPECT_EQ(LiveObjects(id).objects, 2);
  EXPECT_NE(Live(0x1000 ^ kTag)->serial, HEAPTAP_LIVE_NONE);
  Free(0x1000, kTag | kNameId);
  Free(0x2000, kTag | kNameId);
  EXPECT_EQ(LiveObjects(id), Totals{});
  // The first name is kept.
  ASSERT_TRUE(kernel.WriteMemory(kArguments, "other\0", 6));
  Alloc({.address = 0x3000, .heap = kTag | kNameId});
  EXPECT_STREQ(kernel.Find<heaptap_thread_name>("names", heaptap_thread_key{id, heap_tid, 0})->name, "pool");
}

TEST_F(HostHeaps, AHeapWithoutANameStandsUnderItsThreads) {
  const uint64_t id = Track().identity.id;
  Alloc({.address = 0x1000, .heap = kTag, .name = 0});
  EXPECT_EQ(Live(0x1000 ^ kTag)->tid, kPid);
  EXPECT_EQ(kernel.map("names").size(), 0);
  EXPECT_EQ(Tally(StackId(0x1000 ^ kTag))->allocated.objects, 1);
  EXPECT_EQ(LiveObjects(id).objects, 1);
}

TEST_F(HostHeaps, AHeapWhoseNameCannotBeReadHasNone) {
  Track();
  Alloc({.address = 0x1000, .heap = kTag | kNameId, .name = 8});
  EXPECT_EQ(kernel.map("names").size(), 0);
}

// Any thread may use the tally of a heap, so it stays, and the stack is looked for each time.
TEST_F(HostHeaps, TheTallyOfAHeapOutlivesItsLostStack) {
  const uint64_t id = Track(kPid, HEAPTAP_PROCESS_FIGURES).identity.id;
  const uint32_t heap_tid = HEAPTAP_HEAP_TID | kNameId;
  kernel.map("stacks").max_entries = 0;
  Alloc({.address = 0x1000, .heap = kTag | kNameId});
  Alloc({.address = 0x2000, .heap = kTag | kNameId});
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_STACKS_FULL, 2}}));
  EXPECT_EQ(Tally(HEAPTAP_NO_STACK, heap_tid)->allocated.objects, 2);
  EXPECT_EQ(kernel.map("tallies").size(), 2);
  kernel.map("stacks").max_entries = 1;
  Alloc({.address = 0x3000, .heap = kTag | kNameId});
  EXPECT_NE(StackId(0x3000 ^ kTag), HEAPTAP_NO_STACK);
  EXPECT_EQ(Tally(StackId(0x3000 ^ kTag), heap_tid)->allocated.objects, 1);
  EXPECT_EQ(LossesOf(id), (Losses{{HEAPTAP_LOSS_STACKS_FULL, 2}}));
}

}  // namespace
}  // namespace heaptap::harness
