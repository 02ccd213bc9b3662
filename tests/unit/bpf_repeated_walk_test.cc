// SPDX-License-Identifier: Apache-2.0
//
// Walks that repeat the latest one, because the words that decided it are the same (bpf/walk.bpf.h, memory.bpf.h), on
// the simulated kernel.
#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

const uint32_t kByRbp = Rule(HEAPTAP_CFA_RBP, 2);
// A function that saves RBP below its return address.
const uint32_t kSavesRbp = Rule(HEAPTAP_CFA_RSP, 2, HEAPTAP_RBP_AT_CFA, -2);

// A thread whose stack can change in one way at a time. Before and after the change, the words at the places that the
// first walk read are the same, so only what the change is about tells the stacks apart.
class HostRepeatedWalk : public ::testing::Test {
 protected:
  HostRepeatedWalk() {
    leaf_ = process_.Function(kPlain);
    by_rbp_ = process_.Function(kByRbp);
    start_ = process_.Function(kEnd);
    process_.Load();
    base_ = process_.stack_begin() + 512;
    process_.registers.rsp() = base_;
    process_.registers.rbp() = base_ + 64;
    process_.kernel.WriteWord(base_, by_rbp_ + 1);
    process_.kernel.WriteWord(base_ + 72, start_ + 1);
  }
  // The frames of two walks in a row, the second of which finds all rules in the cache.
  std::vector<uint64_t> Walk(uint64_t rip) {
    process_.registers.rip = rip;
    return Frames(process_.kernel.Walk(process_.registers, &id_));
  }

  Simulation process_;
  uint64_t leaf_, by_rbp_, start_;
  uint64_t base_;
  uint64_t id_ = 0;
};

TEST_F(HostRepeatedWalk, TheFramePointerDiffers) {
  process_.kernel.WriteWord(base_ + 136, start_ + 2);
  Walk(leaf_);
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 1));
  const uint64_t first = id_;
  process_.registers.rbp() += 64;
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 2));
  EXPECT_NE(id_, first);
  process_.registers.rbp() -= 64;
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 1));
  EXPECT_EQ(id_, first);
}

// That is the gain: no rule is looked up.
TEST_F(HostRepeatedWalk, NothingDiffers) {
  Walk(leaf_);
  Walk(leaf_);
  process_.kernel.calls = {};
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 1));
  EXPECT_EQ(process_.kernel.calls.lookup, 1) << "that of the buffer";
}

TEST_F(HostRepeatedWalk, TheStackPointerDiffers) {
  process_.registers.rbp() = base_ + 256;
  process_.kernel.WriteWord(base_ + 264, start_ + 1);
  Walk(leaf_);
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 1));
  // As far from the stack pointer as before there are the same words.
  process_.registers.rsp() = base_ - 64;
  process_.kernel.WriteWord(base_ - 64, by_rbp_ + 1);
  process_.kernel.WriteWord(base_ + 200, start_ + 1);
  process_.kernel.WriteWord(base_ + 264, start_ + 2);
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 2));
}

TEST_F(HostRepeatedWalk, TheInstructionDiffers) {
  const uint64_t other = process_.Function(Rule(HEAPTAP_CFA_RSP, 3));
  process_.Load();
  process_.kernel.WriteWord(base_ + 16, start_ + 3);
  Walk(leaf_);
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 1));
  EXPECT_THAT(Walk(other), ElementsAre(other, start_ + 3));
}

TEST_F(HostRepeatedWalk, AnyWordDiffers) {
  Walk(leaf_);
  Walk(leaf_);
  process_.kernel.WriteWord(base_ + 72, start_ + 9);  // the last one
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, by_rbp_ + 1, start_ + 9));
  process_.kernel.WriteWord(base_, start_ + 5);  // the first one
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, start_ + 5));
}

TEST_F(HostRepeatedWalk, TheTablesDiffer) {
  Walk(leaf_);
  Walk(leaf_);
  for (heaptap_row& row : process_.tables[kProgram].rows) {
    if (row.pc == leaf_ - kCodeAt[kProgram]) row.rule = Rule(HEAPTAP_CFA_RSP, 10);
  }
  process_.Load();
  process_.kernel.lock_sequence++;
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_, start_ + 1));
}

TEST_F(HostRepeatedWalk, TheProcessDiffers) {
  Walk(leaf_);
  Walk(leaf_);
  const uint64_t first = id_;
  process_.kernel.process.identity.id++;
  Walk(leaf_);
  EXPECT_NE(id_, first);
}

// Words that can no longer be read are not the same.
TEST_F(HostRepeatedWalk, TheMemoryIsGone) {
  Walk(leaf_);
  Walk(leaf_);
  process_.kernel.memory.clear();
  EXPECT_THAT(Walk(leaf_), ElementsAre(leaf_));
}

// --- what a walk may meet --------------------------------------------------------------------------------------------

// Whether a further walk finds the stack of the latest one without any rule.
bool IsRepeated(Simulation& process, uint64_t leaf) {
  process.kernel.calls = {};
  process.Walk(leaf);
  return process.kernel.calls.lookup == 1;  // that of the buffer
}

TEST(RepeatedWalk, TheFirstOneIsEnough) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({leaf + 1, leaf + 2, start + 1});
  EXPECT_FALSE(IsRepeated(process, leaf));
  EXPECT_TRUE(IsRepeated(process, leaf));
}

TEST(RepeatedWalk, AnRbpThatHoldsData) {
  Simulation process;
  const uint64_t leaf = process.Function(kSavesRbp);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({4711, leaf + 1, 4712, start + 1});
  process.Walk(leaf);
  process.kernel.WriteWord(process.stack_begin(), 1);
  process.kernel.WriteWord(process.stack_begin() + 16, 2);
  EXPECT_TRUE(IsRepeated(process, leaf));
}

// The saved RBP of the first frame decides where the third one is.
TEST(RepeatedWalk, AnRbpThatIsSavedAndUsed) {
  for (const bool is_cached : {false, true}) {
    Simulation process;
    const uint64_t leaf = process.Function(kSavesRbp);
    const uint64_t plain = process.Function(kPlain);
    const uint64_t by_rbp = process.Function(kByRbp);
    const uint64_t start = process.Function(kEnd);
    process.Load();
    const uint64_t base = process.stack_begin() + 64;
    process.Words({base, plain + 1, by_rbp + 1});
    process.kernel.WriteWord(base + 8, start + 1);
    process.kernel.WriteWord(base + 24, start + 2);
    if (is_cached) process.Walk(leaf);
    EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, plain + 1, by_rbp + 1, start + 1));
    EXPECT_TRUE(IsRepeated(process, leaf));
    process.kernel.WriteWord(process.stack_begin(), base + 16);
    EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, plain + 1, by_rbp + 1, start + 2));
  }
}

TEST(RepeatedWalk, SeveralPagesOfStack) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t large = process.Function(Rule(HEAPTAP_CFA_RSP, 500));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({large + 1});
  for (const uint64_t word : {large + 2, large + 3, start + 1}) {
    process.MoveTo(process.next() + 499 * 8);
    process.Words({word});
  }
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, large + 1, large + 2, large + 3, start + 1));
  EXPECT_TRUE(IsRepeated(process, leaf));
  process.kernel.WriteWord(process.next() - 8, start + 2);
  EXPECT_FALSE(IsRepeated(process, leaf));
}

// The return address and the saved RBP lie in two pages, and the window ends between them.
TEST(RepeatedWalk, AFrameAcrossPages) {
  Simulation process;
  const uint64_t leaf = process.Function(kSavesRbp);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.registers.rsp() = process.stack_begin() + kPage - 8;
  process.MoveTo(process.registers.rsp());
  process.Words({4711, start + 1});
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, start + 1));
  process.kernel.WriteWord(process.registers.rsp(), 1);
  EXPECT_TRUE(IsRepeated(process, leaf));
}

TEST(RepeatedWalk, DeepStacks) {
  for (const uint64_t frames : {127u, 128u, 500u, 512u, 513u}) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    const uint64_t start = process.Function(kEnd);
    process.Load();
    for (uint64_t i = 1; i < frames; i++) process.Words({leaf + 1 + i % 2});
    process.Words({start + 1});
    const heaptap_stack first = process.Walk(leaf);
    EXPECT_EQ(IsRepeated(process, leaf), frames <= 512) << frames;
    EXPECT_EQ(Frames(process.Walk(leaf)), Frames(first)) << frames;
    process.kernel.WriteWord(process.stack_begin() + 8 * (frames / 2), start + 3);
    EXPECT_NE(Frames(process.Walk(leaf)), Frames(first)) << frames;
  }
}

// Entry points of threads may have the return address 0.
TEST(RepeatedWalk, AReturnAddressOfZero) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  process.Words({leaf + 1, 0});
  process.Walk(leaf);
  EXPECT_TRUE(IsRepeated(process, leaf));
  process.kernel.WriteWord(process.stack_begin() + 8, leaf + 2);
  EXPECT_FALSE(IsRepeated(process, leaf));
}

// Frames of other kinds, each decided by words of the stack alone.
TEST(RepeatedWalk, OtherRules) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t realigned =
      process.Function(Rule(HEAPTAP_CFA_DEREF_RBP, heaptap_unwind_pair(-1, 0), HEAPTAP_RBP_AT_RBP, 0));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  const uint64_t base = process.stack_begin() + 256;
  process.registers.rbp() = base;
  process.Words({realigned + 1});
  process.kernel.WriteWord(base - 8, base + 64);
  process.kernel.WriteWord(base + 56, start + 1);
  process.kernel.WriteWord(base + 120, start + 2);
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, realigned + 1, start + 1));
  EXPECT_TRUE(IsRepeated(process, leaf));
  process.kernel.WriteWord(base - 8, base + 128);
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, realigned + 1, start + 2));
}

// Code that is made at run time may change in place: no walk through it is repeated.
TEST(RepeatedWalk, CodeWithoutAFileIsLookedAtAnew) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t made = process.Function(0, kNoFile);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  const uint64_t base = process.stack_begin() + 64;
  process.registers.rbp() = base;
  process.Words({made + 1});
  process.kernel.WriteWord(base, base + 64);
  process.kernel.WriteWord(base + 8, start + 1);
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, made + 1, start + 1));
  EXPECT_FALSE(IsRepeated(process, leaf));
}

// The expectation reaches beyond the top of this stack.
TEST(RepeatedWalk, NearTheTopOfTheStack) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.kernel.process.stack_bytes = 2048;
  process.registers.rsp() = kStackTop - 400;
  process.kernel.WriteWord(kStackTop - 400, start + 1);
  process.Walk(leaf);
  process.Walk(leaf);
  process.kernel.calls = {};
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, start + 1));
  EXPECT_EQ(process.kernel.calls.lookup, 1) << "that of the buffer, and of no rule";
}

const uint32_t kByRbx = Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(3, 1));

// A walk that has used a register is never repeated by words alone.
TEST(RepeatedWalk, AnotherRegisterIsAnotherStack) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t by_rbx = process.Function(kByRbx);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({by_rbx + 1});
  for (uint64_t i = 1; i <= 3; i++) {
    process.registers.numbers[3] = process.stack_begin() + 64 * i;
    process.kernel.WriteWord(process.registers.numbers[3], start + i);
    EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, by_rbx + 1, start + i));
  }
}

}  // namespace
}  // namespace heaptap::harness
