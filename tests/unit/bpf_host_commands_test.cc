// SPDX-License-Identifier: Apache-2.0
//
// The programs that the collector runs (bpf/command_programs.bpf.h), on the simulated kernel.
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "heaptap/contract.h"
#include "tests/unit/bpf_machine.h"

namespace heaptap::harness {
namespace {

constexpr uint32_t kChild = 200;
constexpr uint32_t kOther = 400;

class HostCommands : public MachineTest {};

TEST_F(HostCommands, RulesOfAProcessBecomeInvalid) {
  const heaptap_process& process = Track();
  Fork(kPid, kChild, true);
  heaptap_invalidate_rules argument = {.tgid = kPid, .reserved = 0};
  EXPECT_EQ(invalidate_rules(&argument), 0);
  EXPECT_EQ(process.mappings, 1);
  argument.tgid = kChild;
  EXPECT_EQ(invalidate_rules(&argument), 0);
  EXPECT_EQ(process.mappings, 2) << "the memory is the parent's";
  argument.tgid = kOther;
  EXPECT_EQ(invalidate_rules(&argument), 0);
  EXPECT_EQ(process.mappings, 2);
}

TEST_F(HostCommands, IdentifyNamesTheFileAtAnAddress) {
  kernel.mappings.push_back({.start = 0x401000,
                             .end = 0x402000,
                             .executable = true,
                             .file = heaptap_file_key{100, 0x800001, 7},
                             .file_offset = 0x1000});
  kernel.mappings.push_back(
      {.start = 0x7fff0000, .end = 0x7fff1000, .executable = true, .file = {}, .file_offset = 0, .is_vdso = true});
  const struct {
    uint64_t address, inode, device, generation;
    bool has_inode;
  } cases[] = {{0x401000, 100, 0x800001, 7, true},
               {0x401fff, 100, 0x800001, 7, true},
               {0x402000, 0, 0, 0, false},
               {kCode, 0, 0, 0, false},
               {0x7fff0010, HEAPTAP_VDSO_INODE, 0, 0, false}};
  for (const auto& one : cases) {
    heaptap_identify argument = {.address = one.address, .file = {1, 2, 3}, .inode_address = 4};
    EXPECT_EQ(identify(&argument), 0);
    EXPECT_EQ(argument.file.inode, one.inode) << one.address;
    EXPECT_EQ(argument.file.device, one.device);
    EXPECT_EQ(argument.file.generation, one.generation);
    EXPECT_EQ(argument.inode_address != 0, one.has_inode) << one.address;
  }
}

// --- configure -------------------------------------------------------------------------------------------------------

class HostConfigure : public HostCommands {
 protected:
  HostConfigure() : process_(Track(kPid, HEAPTAP_PROCESS_FIGURES)) {
    has_own_figures = true;
    process_.triggers = {.first_high_water = 1000, .interval_step = 70, .high_water_percent = 10, .reserved = 0};
    process_.marks = {.high_water_at = 5000, .interval_at = 7000};
    process_.figures.allocated_weight = 6990;
    process_.limits = {.max_live = 1, .max_tallies = 2};
    argument_ = {.process_id = Id(),
                 .tgid = kPid,
                 .flags = 0,
                 .limits = {.max_live = 11, .max_tallies = 12},
                 .triggers = process_.triggers,
                 .done = 0,
                 .reserved = 0};
  }
  void Run() {
    argument_.done = 0;
    EXPECT_EQ(configure(&argument_), 0);
  }

  heaptap_process& process_;
  heaptap_configure argument_;
};

TEST_F(HostConfigure, UnchangedTriggersKeepTheirMarks) {
  Run();
  EXPECT_EQ(argument_.done, 1);
  EXPECT_EQ(process_.limits.max_live, 11);
  EXPECT_EQ(process_.limits.max_tallies, 12);
  EXPECT_EQ(process_.marks.high_water_at, 5000);
  EXPECT_EQ(process_.marks.interval_at, 7000);
  EXPECT_EQ(process_.flags, HEAPTAP_PROCESS_FIGURES);
}

TEST_F(HostConfigure, ChangedTriggersHaveNewMarks) {
  argument_.triggers.first_high_water = 2000;
  Run();
  EXPECT_EQ(process_.triggers.first_high_water, 2000);
  EXPECT_EQ(process_.marks.high_water_at, 2000);
  EXPECT_EQ(process_.marks.interval_at, 7000);
  process_.marks.high_water_at = 9000;
  argument_.triggers.high_water_percent = 20;
  Run();
  EXPECT_EQ(process_.triggers.high_water_percent, 20);
  EXPECT_EQ(process_.marks.high_water_at, 2000);
  EXPECT_EQ(process_.marks.interval_at, 7000);
  process_.marks.high_water_at = 9000;
  argument_.triggers.interval_step = 100;
  Run();
  EXPECT_EQ(process_.triggers.interval_step, 100);
  EXPECT_EQ(process_.marks.interval_at, 7090) << "the grid begins here";
  EXPECT_EQ(process_.marks.high_water_at, 9000);
  argument_.triggers = {};
  Run();
  EXPECT_EQ(process_.marks.high_water_at, HEAPTAP_NEVER);
  EXPECT_EQ(process_.marks.interval_at, HEAPTAP_NEVER);
}

TEST_F(HostConfigure, AProcessCanBeIgnored) {
  argument_.flags = HEAPTAP_PROCESS_IGNORED;
  Run();
  EXPECT_EQ(process_.flags, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_IGNORED);
  argument_.flags = 0;
  Run();
  EXPECT_EQ(process_.flags, HEAPTAP_PROCESS_FIGURES | HEAPTAP_PROCESS_IGNORED) << "nothing undoes it";
}

TEST_F(HostConfigure, WhoIsNotConfigured) {
  argument_.process_id += 2;
  Run();
  EXPECT_EQ(argument_.done, 0) << "other books by now";
  argument_.process_id -= 2;
  argument_.tgid = kOther;
  Run();
  EXPECT_EQ(argument_.done, 0);
  Fork(kPid, kChild, true);
  argument_.tgid = kChild;
  Run();
  EXPECT_EQ(argument_.done, 0) << "a vfork child";
  EXPECT_EQ(process_.limits.max_live, 1);
  EXPECT_EQ(Process(kChild)->limits.max_live, 1);
}

// --- fold ------------------------------------------------------------------------------------------------------------

constexpr uint32_t kThread = kPid + 7;

class HostFold : public HostCommands {
 protected:
  // Two threads have taken samples on one stack, and freed them.
  HostFold() : process_(Track(kPid, HEAPTAP_PROCESS_FIGURES)) {
    for (uint64_t i = 1; i <= 3; i++) {
      RunAs(kPid, i < 3 ? kThread : kPid);
      Fire({.address = 0x1000 * i, .size = i, .weight = 10 * i, .serial = i});
    }
    stack_ = StackId(0x1000);
    HandOver({{0x1000, 1}, {0x2000, 2}, {0x3000, 3}});
    process_.threads_begun = 5;
  }
  // Whether the tally of a thread was folded.
  bool Fold(uint32_t tid, uint32_t threads_begun = 5, uint32_t tgid = kPid) {
    heaptap_fold argument = {.key = {.process_id = Id(), .stack_id = stack_, .tid = tid, .reserved = 0},
                             .tgid = tgid,
                             .done = 0,
                             .threads_begun = threads_begun,
                             .reserved = 0};
    EXPECT_EQ(fold(&argument), 0);
    return argument.done == 1;
  }

  heaptap_process& process_;
  uint64_t stack_ = 0;
};

TEST_F(HostFold, AddsATallyToThatOfThread0) {
  const heaptap_tally before = *Tally(stack_, kThread);
  EXPECT_EQ(before.allocated.objects, 2);
  EXPECT_TRUE(Fold(kThread));
  EXPECT_EQ(Tally(stack_, kThread), nullptr);
  ASSERT_NE(Tally(stack_, 0), nullptr);
  EXPECT_EQ(memcmp(Tally(stack_, 0), &before, sizeof(before)), 0);
  EXPECT_EQ(process_.figures.tallies, 2);
  EXPECT_TRUE(Fold(kPid));
  EXPECT_EQ(Tally(stack_, 0)->allocated.objects, 3);
  EXPECT_EQ(Tally(stack_, 0)->allocated.bytes, 6);
  EXPECT_EQ(Tally(stack_, 0)->allocated.weight, 60);
  EXPECT_EQ(Tally(stack_, 0)->allocated.weighted_objects, uint64_t{30} << HEAPTAP_OBJECT_FRACTION_BITS);
  EXPECT_EQ(memcmp(&Tally(stack_, 0)->allocated, &Tally(stack_, 0)->freed, sizeof(heaptap_count)), 0);
  EXPECT_EQ(process_.figures.tallies, 1);
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_TALLIES), 1);
}

TEST_F(HostFold, WhatIsNotFolded) {
  EXPECT_FALSE(Fold(kThread + 1)) << "no such tally";
  EXPECT_FALSE(Fold(kThread, 4)) << "a thread with the same TID may have begun";
  EXPECT_FALSE(Fold(kThread, 6));
  RunAs(kPid, kThread);
  Fire({.address = 0x1000, .serial = 9});
  EXPECT_FALSE(Fold(kThread)) << "an object lives";
  HandOver({{0x1000, 9}});
  EXPECT_TRUE(Fold(kThread));
  EXPECT_FALSE(Fold(0)) << "thread 0 is the sum";
  EXPECT_EQ(Tally(stack_, 0)->allocated.objects, 3);
}

// A tally whose objects are all freed is added to another one and deleted, so by then its sums must be complete.
TEST_F(HostFold, AFreeCountsItsObjectLast) {
  constexpr uint64_t kRounds = 20000;
  constexpr uint64_t kSize = 64;
  RunAs(kPid, kThread);
  const heaptap_count& freed = Tally(stack_, kThread)->freed;
  const heaptap_count before = freed;
  const auto read = [](const uint64_t& field) { return __atomic_load_n(&field, __ATOMIC_ACQUIRE); };
  std::atomic<bool> is_over = false;
  uint64_t incomplete = 0;
  std::thread watcher([&] {
    while (!is_over) {
      const uint64_t objects = read(freed.objects) - before.objects;
      if (read(freed.bytes) - before.bytes < objects * kSize) incomplete++;
    }
  });
  for (uint64_t i = 0; i < kRounds; i++) {
    Fire({.address = 0x1000, .size = kSize, .weight = kSize, .serial = 100 + i});
    HandOver({{0x1000, 100 + i}});
  }
  is_over = true;
  watcher.join();
  EXPECT_EQ(freed.objects - before.objects, kRounds);
  EXPECT_EQ(incomplete, 0);
}

TEST_F(HostFold, NoRoomForTheSumLeavesTheTallyAlone) {
  kernel.map("tallies").max_entries = 2;
  EXPECT_FALSE(Fold(kThread));
  EXPECT_EQ(Tally(stack_, kThread)->allocated.objects, 2);
  EXPECT_EQ(kernel.map("tallies").size(), 2);
}

// The collector finds tallies of processes that have ended, or have other books by now.
TEST_F(HostFold, AfterTheProcessHasEnded) {
  EXPECT_TRUE(Fold(kThread, 0, 0));
  EXPECT_TRUE(Fold(kPid, 0, kOther));
  process_.figures.tallies = 1;  // nobody counted
  heaptap_fold argument = {.key = {.process_id = 1000, .stack_id = stack_, .tid = 3, .reserved = 0},
                           .tgid = kPid,
                           .done = 0,
                           .threads_begun = 5,
                           .reserved = 0};
  kernel.Put("tallies", argument.key, heaptap_tally{});
  kernel.Put("tallies", heaptap_tally_key{1000, stack_, 0, 0}, heaptap_tally{});
  Counter(HEAPTAP_COUNTER_TALLIES) += 2;
  EXPECT_EQ(fold(&argument), 0);
  EXPECT_EQ(argument.done, 1);
  EXPECT_EQ(process_.figures.tallies, 1) << "those of other books";
}

TEST_F(HostFold, TalliesDeletedByTheCollectorAreCounted) {
  kernel.Remove("tallies", heaptap_tally_key{Id(), stack_, kThread, 0});
  kernel.Remove("tallies", heaptap_tally_key{Id(), stack_, kPid, 0});
  ForgetSamples();
  process_.figures = {};
  heaptap_tallies_deleted argument = {.tallies = 2};
  EXPECT_EQ(tallies_deleted(&argument), 0);
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_TALLIES), 0);
}

// --- frees -----------------------------------------------------------------------------------------------------------

TEST_F(HostCommands, TheCollectorTakesFreesOfAProcess) {
  heaptap_process& process = Track(kPid, HEAPTAP_PROCESS_FIGURES);
  const uint64_t id = process.identity.id;
  for (uint64_t i = 1; i <= 4; i++) Fire({.address = 0x1000 * i, .serial = i});
  Fork(kPid, kChild, true);
  const heaptap_free frees[] = {{0x1000, 1}, {0x2000, 2}, {0x2000, 2}, {0x3000, 9}};
  ASSERT_TRUE(kernel.WriteMemory(kArguments, frees, sizeof(frees)));
  heaptap_take_frees argument = {.process_id = id, .tgid = kPid, .count = 1, .frees = kArguments};
  RunAs(kOther);  // the collector
  EXPECT_EQ(take_frees(&argument), 0);
  EXPECT_EQ(LiveObjects(id).objects, 3);
  EXPECT_EQ(process.figures.live_objects, 3);
  argument.count = 4;
  argument.process_id++;
  EXPECT_EQ(take_frees(&argument), 0);
  EXPECT_EQ(LiveObjects(id).objects, 3) << "other books by now";
  argument.process_id--;
  argument.tgid = kOther;
  EXPECT_EQ(take_frees(&argument), 0);
  EXPECT_EQ(LiveObjects(id).objects, 3) << "not recorded";
  argument.tgid = kChild;
  EXPECT_EQ(take_frees(&argument), 0);
  EXPECT_EQ(LiveObjects(id).objects, 2);
  EXPECT_EQ(process.figures.live_weight, 1280);
}

TEST_F(HostCommands, TheCollectorTakesAsManyFreesAsASlotHas) {
  Track();
  std::vector<heaptap_free> frees;
  for (uint64_t i = 1; i <= HEAPTAP_SLOT_FREES + 2; i++) {
    Fire({.address = 0x1000 * i, .serial = i});
    frees.push_back({0x1000 * i, i});
  }
  ASSERT_TRUE(kernel.WriteMemory(kArguments, frees.data(), frees.size() * sizeof(heaptap_free)));
  heaptap_take_frees argument = {.process_id = Id(), .tgid = kPid, .count = 1000, .frees = kArguments};
  EXPECT_EQ(take_frees(&argument), 0);
  EXPECT_EQ(LiveObjects(Id()).objects, 2);
}

// --- sweep -----------------------------------------------------------------------------------------------------------

TEST_F(HostCommands, ASweepDeletesEntriesWithoutAnObject) {
  const uint64_t id = Track().identity.id;
  for (uint64_t i = 1; i <= 6; i++) Fire({.address = 0x1000 * i, .serial = i});
  HandOver({{0x1000, 1}, {0x3000, 3}, {0x5000, 5}});
  Live(0x5000)->serial = HEAPTAP_LIVE_CLAIMED;  // a program is about to fill it in
  EXPECT_EQ(sweep(nullptr), 0);
  EXPECT_EQ(kernel.map("live").size(), 4);
  EXPECT_EQ(Live(0x1000), nullptr);
  EXPECT_EQ(Live(0x3000), nullptr);
  EXPECT_EQ(Live(0x5000)->serial, HEAPTAP_LIVE_CLAIMED);
  EXPECT_EQ(LiveObjects(id).objects, 3);
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_LIVE_ENTRIES), 4);
}

TEST_F(HostCommands, ASweepDeletesAllOfForgottenBooks) {
  const uint64_t id = Track(kPid).identity.id;
  Fire({.address = 0x1000, .serial = 1});
  Fire({.address = 0x2000, .serial = 2});
  HandOver({{0x2000, 2}});
  const uint64_t other = Track(kOther).identity.id;
  Fire({.address = 0x1000, .serial = 1});
  Forget(id);
  EXPECT_EQ(sweep(nullptr), 0);
  EXPECT_EQ(kernel.map("live").size(), 1);
  EXPECT_EQ(LiveObjects(other).objects, 1);
  EXPECT_EQ(LiveObjects(id).objects, 0);
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_LIVE_ENTRIES), 1);
}

}  // namespace
}  // namespace heaptap::harness
