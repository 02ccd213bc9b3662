// SPDX-License-Identifier: Apache-2.0
//
// Frees that threads hold back (bpf/frees.bpf.h) and records of the latest samples (bpf/records.bpf.h), on the
// simulated kernel.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

class HostFrees : public MachineTest {
 protected:
  // Objects 1 to `count`, each at 0x1000 times its serial number.
  void FireAll(uint64_t count) {
    for (uint64_t i = 1; i <= count; i++) Fire({.address = 0x1000 * i, .serial = i});
  }
  static std::vector<heaptap_free> Frees(uint64_t first, uint64_t last) {
    std::vector<heaptap_free> frees;
    for (uint64_t i = first; i <= last; i++) frees.push_back({0x1000 * i, i});
    return frees;
  }
  // The serial numbers of all objects of the process.
  std::vector<uint64_t> Serials() {
    std::vector<uint64_t> serials;
    kernel.map("live").ForEachEntry<heaptap_live_key, heaptap_live>([&](const auto& key, const auto& entry) {
      if (key.process_id == Id() && entry.serial != HEAPTAP_LIVE_NONE) serials.push_back(entry.serial);
    });
    return serials;
  }
};

// --- where they are --------------------------------------------------------------------------------------------------

TEST_F(HostFrees, TheProcessSaysWhereItsFreesAre) {
  const heaptap_process& process = Track();
  for (const uint32_t slot : {1u, 2u, 7u, uint32_t{HEAPTAP_SLOTS}}) {
    Fire({.address = 0x1000 * slot, .slot = slot});
    EXPECT_EQ(process.pending, kPending) << slot;
  }
  Fire({.address = 0x500000, .slot = 0});  // it holds nothing back any more
  EXPECT_EQ(process.pending, 0);
  HandOver({{0x1000, 1}}, 3);
  EXPECT_EQ(process.pending, kPending);
  // A thread without a slot, because there are too many threads, says nothing about the others.
  pt_regs registers = {};
  registers.di = kArguments;
  registers.si = HEAPTAP_WHERE(0, 1);
  kernel.cookie = HEAPTAP_PROBE_FREES_SITE;
  EXPECT_EQ(probe_free(&registers), 0);
  EXPECT_EQ(process.pending, kPending);
}

TEST_F(HostFrees, AThreadWithoutASlotFreesToo) {
  Track();
  FireAll(2);
  const heaptap_free freed = {0x1000, 1};
  ASSERT_TRUE(kernel.WriteMemory(kArguments, &freed, sizeof(freed)));
  pt_regs registers = {};
  registers.di = kArguments;
  registers.si = HEAPTAP_WHERE(0, 1);
  kernel.cookie = HEAPTAP_PROBE_FREES_SITE;
  EXPECT_EQ(probe_free(&registers), 0);
  EXPECT_EQ(Serials(), std::vector<uint64_t>{2});
}

// --- how many --------------------------------------------------------------------------------------------------------

TEST_F(HostFrees, AsManyAsASlotHas) {
  Track(kPid, HEAPTAP_PROCESS_FIGURES);
  FireAll(HEAPTAP_SLOT_FREES + 10);
  HandOver(Frees(1, HEAPTAP_SLOT_FREES));
  EXPECT_EQ(LiveObjects(Id()).objects, 10);
  // With a sample: the first one in registers, and the rest.
  Fire({.address = 0x900000, .serial = 1000, .frees = Frees(HEAPTAP_SLOT_FREES + 1, HEAPTAP_SLOT_FREES + 5)});
  EXPECT_EQ(LiveObjects(Id()).objects, 6);
  EXPECT_EQ(Process()->figures.live_objects, 6);
  // A count that is forged reads no more than a slot has.
  kernel.calls = {};
  pt_regs registers = {};
  registers.di = kPending;
  registers.si = HEAPTAP_WHERE(1, ~uint32_t{0});
  kernel.cookie = HEAPTAP_PROBE_FREES_SITE;
  EXPECT_EQ(probe_free(&registers), 0);
  EXPECT_EQ(kernel.calls.read_user, HEAPTAP_SLOT_FREES);
}

TEST_F(HostFrees, MemoryThatCannotBeReadEndsTheFrees) {
  Track();
  FireAll(4);
  const uint64_t end = kArguments + kPage;
  const heaptap_free frees[] = {{0x1000, 1}, {0x2000, 2}};
  ASSERT_TRUE(kernel.WriteMemory(end - sizeof(frees), frees, sizeof(frees)));
  pt_regs registers = {};
  registers.di = end - sizeof(frees);
  registers.si = HEAPTAP_WHERE(0, 10);
  kernel.calls = {};
  kernel.cookie = HEAPTAP_PROBE_FREES_SITE;
  EXPECT_EQ(probe_free(&registers), 0);
  EXPECT_EQ(kernel.calls.read_user, 3);
  EXPECT_EQ(Serials(), (std::vector<uint64_t>{3, 4}));
}

// --- all that a process holds back -----------------------------------------------------------------------------------

TEST_F(HostFrees, TheReaderLooksIntoEachUsedSlot) {
  heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES);
  FireAll(HEAPTAP_SLOT_FREES + 7);
  Hold(1, {});
  Hold(2, {{0x1000, 1}, {0x2000, 2}});
  Hold(HEAPTAP_SLOTS, Frees(3, HEAPTAP_SLOT_FREES + 2));
  Hold(5, {{0x1000 * (HEAPTAP_SLOT_FREES + 3), HEAPTAP_SLOT_FREES + 3}, {0x1000, 1}});  // one a second time
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(LiveObjects(Id()).objects, 4);
  EXPECT_EQ(process.figures.live_objects, 4);
  EXPECT_EQ(process.figures.live_weight, 4 * 640);
}

TEST_F(HostFrees, TheReaderLooksIntoNoSlotBeyondTheUsedOnes) {
  Track();
  FireAll(3);
  Hold(1, {{0x1000, 1}});
  Hold(3, {{0x3000, 3}});
  auto& pending = *reinterpret_cast<heaptap_pending*>(kernel.memory[kPending].data());
  pending.used = 2;
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(Serials(), (std::vector<uint64_t>{2, 3}));
  // A forged number reads no more than there are.
  Process()->pending = kPending;
  pending.used = ~uint64_t{0};
  kernel.calls = {};
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(Serials(), std::vector<uint64_t>{2});
  EXPECT_LE(kernel.calls.read_user, HEAPTAP_SLOTS + 3);
}

// Memory that was never written is not there yet.
TEST_F(HostFrees, TheReaderPassesSlotsThatAreNotThere) {
  Track();
  FireAll(2);
  Hold(1, {{0x1000, 1}});
  Hold(9, {{0x2000, 2}});
  std::vector<uint8_t> all = kernel.memory[kPending];
  const auto slots_at = static_cast<ptrdiff_t>(offsetof(heaptap_pending, slots) + sizeof(heaptap_slot));
  const auto last_at = static_cast<ptrdiff_t>(offsetof(heaptap_pending, slots) + 8 * sizeof(heaptap_slot));
  kernel.memory[kPending].resize(static_cast<size_t>(slots_at));
  kernel.memory[kPending + static_cast<uint64_t>(last_at)].assign(all.begin() + last_at, all.end());
  EXPECT_EQ(process_before_exec(nullptr), 0);
  EXPECT_EQ(LiveObjects(Id()).objects, 0);
}

// --- records ---------------------------------------------------------------------------------------------------------

class HostRecords : public MachineTest {
 protected:
  HostRecords() { Track(kPid, HEAPTAP_PROCESS_RECORDS); }
  heaptap_record& Record(uint32_t number) {
    return *kernel.Find<heaptap_record>("records", number % HEAPTAP_DEFAULT_RECORDS);
  }
};

// A kernel may refuse a call of a program.
TEST_F(HostRecords, WithoutTheProgramThatWalksAFreeOnlyMissesItsStack) {
  Fire({.address = 0x1000, .serial = 5});
  kernel.programs.clear();
  HandOver({{0x1000, 5}});
  EXPECT_EQ(LiveObjects(Id()).objects, 0);
  EXPECT_EQ(Record(1).address, 0x1000);
  EXPECT_EQ(Record(1).free_stack_id, 0);
  EXPECT_EQ(LossesOf(Id()), Losses{});
}

TEST_F(HostRecords, ASampleAndItsFree) {
  RunAs(kPid, kPid + 1);
  kernel.time = 1000;
  Fire({.address = 0x1000, .size = 48, .weight = 480, .serial = 5, .stack = 3});
  const heaptap_record& record = Record(1);
  EXPECT_EQ(record.number, 1);
  EXPECT_EQ(record.process_id, Id());
  EXPECT_EQ(record.address, 0x1000);
  EXPECT_EQ(record.size, 48);
  EXPECT_EQ(record.stack_id, StackId(0x1000));
  EXPECT_EQ(record.time, 1001);
  EXPECT_EQ(record.tid, kPid + 1);
  EXPECT_EQ(record.free_time, 0);
  EXPECT_EQ(record.free_stack_id, HEAPTAP_NO_STACK);
  EXPECT_EQ(record.free_tid, 0);
  RunAs(kPid, kPid + 2);
  kernel.time = 2000;
  HandOver({{0x1000, 5}}, 1, 9);
  EXPECT_GT(record.free_time, 2000);
  EXPECT_EQ(record.free_tid, kPid + 2);
  const auto* stack = kernel.Find<heaptap_stack>("stacks", uint64_t{record.free_stack_id});
  ASSERT_NE(stack, nullptr);
  EXPECT_EQ(stack->frames[0], kCode + 9);
  EXPECT_NE(Tally(record.free_stack_id, kPid + 2), nullptr) << "leads to the stack when the books are deleted";
  EXPECT_EQ(Tally(record.free_stack_id, kPid + 2)->freed.objects, 0);
}

TEST_F(HostRecords, FreesOfEachKindEndTheRecord) {
  Fire({.address = 0x1000, .serial = 1});
  HandOver({{0x1000, 1}});
  Alloc({.address = 0x2000});
  Free(0x2000);
  EXPECT_NE(Record(1).free_time, 0);
  EXPECT_NE(Record(2).free_time, 0);
  // The wrong object ends nothing.
  Fire({.address = 0x3000, .serial = 3});
  HandOver({{0x3000, 2}});
  EXPECT_EQ(Record(3).free_time, 0);
  // Frees that a thread has held back have no stack of their own: the records stay open.
  Fire({.address = 0x4000, .serial = 4});
  HandOver({{0x3000, 3}, {0x4000, 4}});
  EXPECT_EQ(LiveObjects(Id()).objects, 0);
  EXPECT_EQ(Record(3).free_time, 0);
}

TEST_F(HostRecords, AFreeWithoutANumberEndsNothing) {
  Fire({.address = 0x1000, .serial = 1});
  HandOver({{0x1000, HEAPTAP_LIVE_NONE}});
  HandOver({{0x1000, HEAPTAP_LIVE_CLAIMED}});
  EXPECT_EQ(LiveObjects(Id()).objects, 1);
  EXPECT_EQ(Record(1).free_time, 0);
}

TEST_F(HostRecords, TheOldestIsOverwritten) {
  Counter(HEAPTAP_COUNTER_RECORDS) = HEAPTAP_DEFAULT_RECORDS - 1;
  Fire({.address = 0x1000, .serial = 1});
  EXPECT_EQ(Record(0).number, HEAPTAP_DEFAULT_RECORDS);
  HandOver({{0x1000, 1}});
  EXPECT_NE(Record(0).free_time, 0);
  for (const uint64_t round : {2, 3}) {
    Counter(HEAPTAP_COUNTER_RECORDS) = round * HEAPTAP_DEFAULT_RECORDS - 1;
    Fire({.address = 0x1000 * round, .serial = round});
    EXPECT_EQ(Record(0).number, round * HEAPTAP_DEFAULT_RECORDS);
    EXPECT_EQ(Record(0).address, 0x1000 * round);
    EXPECT_EQ(Record(0).free_time, 0);
    EXPECT_EQ(Record(0).free_tid, 0);
    EXPECT_EQ(Record(0).free_stack_id, HEAPTAP_NO_STACK);
  }
  HandOver({{0x2000, 2}});  // its record is gone
  EXPECT_EQ(Record(0).free_time, 0);
  HandOver({{0x3000, 3}});
  EXPECT_NE(Record(0).free_time, 0);
}

// Objects have 32 bits of the number, of which 0 means none.
TEST_F(HostRecords, NoObjectHasTheNumber0) {
  Counter(HEAPTAP_COUNTER_RECORDS) = (uint64_t{1} << 32) - 1;
  Fire({.address = 0x1000, .serial = 1});
  EXPECT_EQ(Live(0x1000)->record, 1);
  EXPECT_EQ(Record(1).number, (uint64_t{1} << 32) + 1);
  EXPECT_EQ(Record(0).number, 0);
  HandOver({{0x1000, 1}});
  EXPECT_NE(Record(1).free_time, 0);
}

// A record with the same low bits may be that of another process or address.
TEST_F(HostRecords, TheRecordOfAnotherObjectStays) {
  for (const bool is_other_process : {false, true}) {
    kernel.map("records").Clear();
    Fire({.address = 0x1000, .serial = 1});
    const uint32_t number = Live(0x1000)->record;
    heaptap_record& record = Record(number);
    (is_other_process ? record.process_id : record.address)++;
    HandOver({{0x1000, 1}});
    EXPECT_EQ(record.free_time, 0) << is_other_process;
    // Nor does a lost sample take it away.
    kernel.before_update = [&](std::string_view map) {
      if (map != "live") return;
      heaptap_record& next = Record(number + 1);
      (is_other_process ? next.process_id : next.address)++;
    };
    kernel.map("live").max_entries = 0;
    kernel.Remove("live", heaptap_live_key{Id(), 0x1000});
    Counter(HEAPTAP_COUNTER_LIVE_ENTRIES) = 0;
    Fire({.address = 0x1000, .serial = 2});
    EXPECT_NE(Record(number + 1).number, 0);
    kernel.before_update = nullptr;
    kernel.map("live").max_entries = 100;
  }
}

TEST_F(HostRecords, ALostSampleHasNoRecord) {
  kernel.map("live").max_entries = 0;
  Fire({});
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_RECORDS), 1);
  EXPECT_EQ(Record(1).number, 0);
}

TEST_F(HostRecords, TheStackOfAFreeMayBeLost) {
  Fire({.address = 0x1000, .serial = 1});
  kernel.map("stacks").max_entries = 1;
  HandOver({{0x1000, 1}}, 1, 9);
  EXPECT_EQ(LossesOf(Id()), (Losses{{HEAPTAP_LOSS_STACKS_FULL, 1}}));
  EXPECT_EQ(Record(1).free_stack_id, HEAPTAP_NO_STACK);
  EXPECT_NE(Record(1).free_time, 0);
  Fire({.address = 0x2000, .serial = 2});
  kernel.map("tallies").max_entries = kernel.map("tallies").size();
  kernel.map("stacks").max_entries = 10;
  kernel.map("losses").ForEach<heaptap_loss>([](heaptap_loss& loss) { loss = {}; });
  RunAs(kPid, kPid + 1);
  HandOver({{0x2000, 2}}, 1, 10);
  EXPECT_EQ(kernel.Find<heaptap_loss>("losses", heaptap_loss_key{Id(), HEAPTAP_LOSS_TALLIES_FULL, 0})->events, 1);
  EXPECT_EQ(LiveObjects(Id()).objects, 0);
  kernel.map("losses").Clear();  // no sample was lost
}

}  // namespace
}  // namespace heaptap::harness
