// SPDX-License-Identifier: Apache-2.0
//
// Windows, stack ids and registers of raw stacks (bpf/walk.bpf.h, memory.bpf.h, stack.bpf.h, scratch.bpf.h), on the
// simulated kernel. unwind_walk_test.cc has the walk itself.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

const uint32_t kByRbp = Rule(HEAPTAP_CFA_RBP, 2);

// --- windows ---------------------------------------------------------------------------------------------------------

// A walk through `words` words; 0 is the outermost return address.
void WalkWords(Simulation& process, uint64_t leaf, uint64_t words) {
  process.MoveTo(process.registers.rsp());
  for (uint64_t i = 1; i < words; i++) process.Words({leaf + 1});
  process.Words({0});
  process.Walk(leaf);
}

// The expectation of a walk that needs `needed` bytes: 64 more, in units of 128.
TEST(HostWindow, GrowsAtOnceAndShrinksSlowly) {
  const struct {
    uint64_t frames;
    uint16_t before, after;
  } cases[] = {{1, 0, 128},   {8, 0, 128},   {9, 0, 256},     {24, 0, 256},    {25, 0, 384},
               {8, 128, 128}, {9, 128, 256}, {1, 256, 254},   {1, 129, 128},   {1, 192, 191},
               {1, 193, 191}, {8, 256, 254}, {1, 4096, 4034}, {100, 128, 896}, {126, 1024, 1152}};
  for (const auto& one : cases) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    process.Load();
    process.kernel.process.stack_bytes = one.before;
    WalkWords(process, leaf, one.frames);
    EXPECT_EQ(process.kernel.process.stack_bytes, one.after) << one.frames << " frames, before " << one.before;
  }
}

constexpr uint32_t kMostBytes = 16384;  // WINDOW_BYTES of bpf/scratch.bpf.h

TEST(HostWindow, HasABound) {
  const struct {
    int words;
    uint32_t bytes;
  } cases[] = {{450, 3712}, {1000, 8064}, {2024, 16256}, {2025, kMostBytes}, {4000, kMostBytes}};
  for (const auto& one : cases) {
    Simulation process;
    const uint64_t leaf = process.Function(Rule(HEAPTAP_CFA_RSP, one.words));
    const uint64_t start = process.Function(kEnd);
    process.Load();
    process.kernel.WriteWord(process.stack_begin() + 8 * (static_cast<uint64_t>(one.words) - 1), start + 1);
    EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, start + 1));
    EXPECT_EQ(process.kernel.process.stack_bytes, one.bytes) << one.words;
  }
}

// A handler may run on a stack far above: the need is no number of 32 bits.
TEST(HostWindow, HasABoundForAStackFarAway) {
  Simulation process;
  const uint64_t leaf = process.Function(kByRbp);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  const uint64_t far = process.stack_begin() + (uint64_t{1} << 32);
  process.kernel.memory[far].resize(kPage);
  process.registers.rbp() = far;
  process.kernel.WriteWord(far + 8, start + 1);
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, start + 1));
  EXPECT_EQ(process.kernel.process.stack_bytes, kMostBytes);
}

TEST(HostWindow, AStackPointerMayBeOdd) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.registers.rsp() = process.stack_begin() + 21;
  process.kernel.WriteWord(process.stack_begin() + 21, start + 1);
  for (int i = 0; i < 3; i++) EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, start + 1));
}

// The window is too small, too large, or odd: the stack is the same.
TEST(HostWindow, ChangesNoStack) {
  for (const int bytes : {0, 1, 7, 8, 12, 64, 504, 512, 2048, 4096, 4104, 16384, 16392, 65535}) {
    for (const uint64_t below_top : {uint64_t{400}, uint64_t{512}, kPage, kPage + 256}) {
      Simulation process;
      const uint64_t leaf = process.Function(kPlain);
      const uint64_t caller = process.Function(Rule(HEAPTAP_CFA_RSP, 40));
      const uint64_t start = process.Function(kEnd);
      process.Load();
      process.registers.rsp() = kStackTop - below_top;
      process.kernel.WriteWord(kStackTop - below_top, caller + 1);
      process.kernel.WriteWord(kStackTop - below_top + 8 + 39 * 8, start + 1);
      process.kernel.process.stack_bytes = static_cast<uint16_t>(bytes);
      EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, caller + 1, start + 1)) << bytes << " " << below_top;
    }
  }
}

TEST(HostWindow, OneReadIsEnoughWhenTheNeedIsKnown) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  process.registers.rsp() = process.stack_begin() + kPage - 64;  // the stack crosses a page
  WalkWords(process, leaf, 60);
  process.kernel.calls = {};
  process.kernel.process.mappings++;
  process.Walk(leaf);
  EXPECT_EQ(process.kernel.calls.read_user, 1);
}

// --- ids -------------------------------------------------------------------------------------------------------------

TEST(HostStackId, TellsStacksApart) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  const auto id_of = [&](const std::vector<uint64_t>& words) {
    process.MoveTo(process.registers.rsp());
    for (const uint64_t word : words) process.Words({word});
    uint64_t id = 0;
    process.registers.rip = leaf;
    process.kernel.Walk(process.registers, &id);
    return id;
  };
  const uint64_t one = id_of({leaf + 1, leaf + 2, start + 1});
  EXPECT_NE(id_of({leaf + 2, leaf + 1, start + 1}), one) << "the order";
  EXPECT_NE(id_of({leaf + 1, leaf + 2, leaf + 2, start + 1}), one) << "the number";
  EXPECT_NE(id_of({leaf + 1, start + 1}), one);
  EXPECT_EQ(id_of({leaf + 1, leaf + 2, start + 1}), one);
  // The same frames with another end.
  const uint64_t whole = id_of({0});
  process.registers.rsp() = kStackTop;
  uint64_t id = 0;
  const heaptap_stack stack = process.kernel.Walk(process.registers, &id);
  EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_MEMORY);
  EXPECT_NE(id, whole);
}

// A library was unmapped, and another one is mapped at the same address: with a table, or without one.
TEST(HostStackId, AnotherFileAtTheSameAddress) {
  constexpr heaptap_file_key kOther = {300, 0x800001, 0};
  for (const bool has_table : {true, false}) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    const uint64_t caller = process.Function(kPlain, kLibrary);
    const uint64_t start = process.Function(kEnd);
    process.Load();
    process.Load(kOther, process.tables[kLibrary]);
    if (!has_table) {
      process.SetState(kLibrary, HEAPTAP_FILE_WITHOUT_TABLE);
      process.kernel.Put("files", kOther, *process.kernel.Find<heaptap_file>("files", kKeys[kLibrary]));
    }
    process.registers.rbp() = process.stack_begin() + 8;
    if (has_table) {
      process.Words({caller + 1, start + 1});
    } else {
      process.Words({caller + 1, 0, start + 1});
    }
    process.registers.rip = leaf;
    const auto id_in = [&](const heaptap_file_key& file, uint64_t offset) {
      process.kernel.mappings[kLibrary].file = file;
      process.kernel.mappings[kLibrary].file_offset = offset;
      process.kernel.lock_sequence++;
      uint64_t first = 0;
      for (int i = 0; i < 3; i++) {  // from the tables, then from the cache
        uint64_t id = 0;
        const heaptap_stack stack = process.kernel.Walk(process.registers, &id);
        EXPECT_THAT(Frames(stack), ElementsAre(leaf, caller + 1, start + 1));
        EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
        if (i == 0) first = id;
        EXPECT_EQ(id, first);
      }
      return first;
    };
    const uint64_t one = id_in(kKeys[kLibrary], kCodeOffset[kLibrary]);
    const uint64_t other = id_in(kOther, kCodeOffset[kLibrary]);
    EXPECT_NE(other, one);
    EXPECT_EQ(id_in(kKeys[kLibrary], kCodeOffset[kLibrary]), one);
    EXPECT_EQ(id_in(kOther, kCodeOffset[kLibrary]), other);
    constexpr heaptap_file_key kReused = {300, 0x800001, 1};  // the number of an inode that is gone
    process.kernel.Put("files", kReused, *process.kernel.Find<heaptap_file>("files", kOther));
    EXPECT_NE(id_in(kReused, kCodeOffset[kLibrary]), other);
    if (!has_table) EXPECT_NE(id_in(kOther, kCodeOffset[kLibrary] + kPage), other) << "another part of the file";
  }
}

// How deep a recursion is does not make it another call path, in whatever files.
TEST(HostStackId, OfADeepStackIsThatOfItsFrames) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.registers.rip = leaf;
  std::set<uint64_t> ids;
  for (const size_t depth : {200, 201, 400}) {
    process.MoveTo(process.registers.rsp());
    for (size_t i = 0; i < depth; i++) process.Words({leaf + 1});
    process.Words({start + 1});
    for (int i = 0; i < 2; i++) {
      uint64_t id = 0;
      process.kernel.Walk(process.registers, &id);
      ids.insert(id);
    }
  }
  EXPECT_THAT(ids, SizeIs(1));
}

// A stack that the program made for itself may end in any number.
TEST(HostStackId, WhatIsNoFrameChangesNothing) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  process.registers.rip = leaf;
  const auto id_above = [&](const std::vector<uint64_t>& words) {
    process.MoveTo(process.registers.rsp());
    for (const uint64_t word : words) process.Words({word});
    uint64_t id = 0;
    EXPECT_EQ(process.kernel.Walk(process.registers, &id).end, HEAPTAP_STACK_NO_CODE);
    return id;
  };
  for (const uint64_t frames : {0, 1, 20}) {
    std::vector<uint64_t> words(frames, leaf + 1);
    words.push_back(0x1000);
    const uint64_t one = id_above(words);
    words.back() = 0x1008;
    EXPECT_EQ(id_above(words), one) << frames;
    words.insert(words.begin(), leaf + 2);
    EXPECT_NE(id_above(words), one) << frames;
  }
}

// --- buffers ---------------------------------------------------------------------------------------------------------

TEST(HostScratch, AnyFreeBufferIsTaken) {
  constexpr uint32_t kSlots = 8;  // SCRATCH_SLOTS of bpf/scratch.bpf.h
  for (uint32_t free = 0; free <= kSlots; free++) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    process.Load();
    process.Words({0});
    for (uint32_t slot = 0; slot < kSlots; slot++) *process.kernel.Find<uint64_t>("scratch", slot) = slot != free;
    uint64_t id = 0;
    process.registers.rip = leaf;
    process.kernel.Walk(process.registers, &id);
    EXPECT_EQ(id != 0, free < kSlots);
    for (uint32_t slot = 0; slot < kSlots; slot++)
      EXPECT_EQ(*process.kernel.Find<uint64_t>("scratch", slot), slot != free);
  }
}

// --- registers -------------------------------------------------------------------------------------------------------

const uint32_t kByRbx = Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(3, 1));

// A callee has saved RBX, and its caller's CFA is based on it.
TEST(HostRegisters, RbxIsFollowed) {
  for (const uint32_t kind : {uint32_t{HEAPTAP_RBX_SAME}, 1u, 2u, uint32_t{HEAPTAP_RBX_LOST}}) {
    Simulation process;
    const uint64_t leaf = process.Function(Rule(HEAPTAP_CFA_RSP, 4) | heaptap_unwind_rbx(kind));
    const uint64_t by_rbx = process.Function(kByRbx);
    const uint64_t start = process.Function(kEnd);
    process.Load();
    const uint64_t base = process.stack_begin() + 64;
    for (uint64_t i = 0; i < 3; i++) process.kernel.WriteWord(base + 64 * i, start + 1 + i);
    process.registers.numbers[3] = base;                    // where RBX is the same
    process.Words({0, base + 128, base + 64, by_rbx + 1});  // saved as the second or the first
    for (int i = 0; i < 2; i++) {                           // the second walk finds all rules in the cache
      const heaptap_stack stack = process.Walk(leaf);
      if (kind == HEAPTAP_RBX_LOST) {
        EXPECT_THAT(Frames(stack), ElementsAre(leaf, by_rbx + 1));
        EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_REGISTER);
      } else {
        EXPECT_THAT(Frames(stack), ElementsAre(leaf, by_rbx + 1, start + 1 + kind));
      }
    }
  }
}

// What the collector gets in place of frame 0's registers: those of the frame where the walk stopped, if they are
// known.
class HostRawRegisters : public ::testing::Test {
 protected:
  HostRawRegisters() {
    for (uint64_t i = 0; i < 16; i++) {
      if (i != 7) process_.registers.numbers[i] = 1000 + i;
    }
  }
  heaptap_raw_stack Take(uint64_t rip) {
    EXPECT_EQ(process_.Sample(rip)->end, HEAPTAP_STACK_UNFINISHED);
    const std::vector<RawStack> raw = process_.kernel.TakeRawStacks();
    EXPECT_THAT(raw, SizeIs(1));
    return raw.empty() ? heaptap_raw_stack{} : raw[0].header;
  }

  Simulation process_;
};

TEST_F(HostRawRegisters, ASavedRbx) {
  const uint64_t leaf = process_.Function(Rule(HEAPTAP_CFA_RSP, 3) | heaptap_unwind_rbx(1));
  const uint64_t unknown = process_.Function(kPlain, kLibrary);
  process_.Load(kProgram);
  process_.Words({0, 4711, unknown + 1});
  const heaptap_raw_stack raw = Take(leaf);
  EXPECT_EQ(raw.registers[3], 4711);
  EXPECT_EQ(raw.registers[12], 1012);
  EXPECT_EQ(raw.frame.rbx_at, HEAPTAP_UNWIND_OTHERS_LIVE);
  EXPECT_EQ(raw.frame.others, HEAPTAP_UNWIND_OTHERS_LOST);
}

TEST_F(HostRawRegisters, OfAFrameThatASignalInterrupted) {
  const uint64_t restorer = process_.Function(Rule(HEAPTAP_CFA_SIGNAL));
  const uint64_t unknown = process_.Function(kPlain, kLibrary);
  process_.Load(kProgram);
  // The order of struct sigcontext_64, by DWARF number; then RIP.
  constexpr int kWord[17] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16};
  const uint64_t registers = process_.stack_begin() + 40;
  for (uint64_t number = 0; number < 16; number++) {
    process_.kernel.WriteWord(registers + 8 * static_cast<uint64_t>(kWord[number]), 2000 + number);
  }
  const uint64_t rsp = process_.stack_begin() + 1024;
  process_.kernel.WriteWord(registers + 8 * 15, rsp);
  process_.kernel.WriteWord(registers + 8 * 16, unknown);
  heaptap_raw_stack raw = Take(restorer);
  for (uint64_t number = 0; number < 16; number++) {
    EXPECT_EQ(raw.registers[number], number == 7 ? rsp : 2000 + number) << number;
  }
  EXPECT_EQ(raw.frame.others, HEAPTAP_UNWIND_OTHERS_LIVE);
  EXPECT_EQ(raw.frame.rbx_at, HEAPTAP_UNWIND_OTHERS_LIVE);
  EXPECT_EQ(raw.rip_bits, 0);

  // The memory goes away before the registers are read.
  process_.kernel.before_lookup = [&](std::string_view map) {
    if (map == "counters") process_.kernel.memory.clear();
  };
  raw = Take(restorer);
  EXPECT_EQ(raw.frame.others, HEAPTAP_UNWIND_OTHERS_LOST);
  EXPECT_EQ(raw.frame.rbx_at, HEAPTAP_UNWIND_OTHERS_LOST);
}

}  // namespace
}  // namespace heaptap::harness
