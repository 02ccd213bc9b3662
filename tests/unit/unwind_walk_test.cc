// SPDX-License-Identifier: Apache-2.0
//
// Tests the stack walk of the eBPF programs, their own code, in a simulated process.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The word of a signal frame's registers (struct sigcontext_64) that has the register of a DWARF number, 16 being RIP.
constexpr int kSignalWord[17] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7, 16};

// Writes a signal frame at an address.
void WriteSignalFrame(Kernel& kernel, uint64_t address, const Registers& registers) {
  for (int number = 0; number < 16; number++) {
    kernel.WriteWord(address + 40 + 8 * kSignalWord[number], registers.numbers[number]);
  }
  kernel.WriteWord(address + 40 + 8 * kSignalWord[16], registers.rip);
}

TEST(UnwindWalk, FramesOfTwoFiles) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t middle = process.Function(Rule(HEAPTAP_CFA_RSP, 4, HEAPTAP_RBP_AT_CFA, -2), kLibrary);
  const uint64_t outer = process.Function(Rule(HEAPTAP_CFA_RBP, 2, HEAPTAP_RBP_AT_CFA, -2), kLibrary);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.registers.rbp() = 12345;  // anything
  process.Words({middle + 16});
  process.Words({1, 2, 0, outer + 5});
  const uint64_t rbp = process.Words({77, start + 1});
  process.kernel.WriteWord(rbp - 16, rbp);
  heaptap_stack stack = process.Walk(leaf);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf, middle + 16, outer + 5, start + 1));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
  EXPECT_LE(process.kernel.calls.read_user, 2);
}

// The programs compare the words that the walk before has read. The stack of that walk must not be taken for another.
TEST(UnwindWalk, TheSameStackAgain) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t pushes = process.Function(Rule(HEAPTAP_CFA_RSP, 3, HEAPTAP_RBP_AT_CFA, -2));
  const uint64_t by_rbp = process.Function(Rule(HEAPTAP_CFA_RBP, 2, HEAPTAP_RBP_AT_CFA, -2));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({pushes + 1});
  const uint64_t local = process.next();
  const uint64_t saved_rbp = local + 8;
  process.Words({55, local + 64, by_rbp + 2});
  process.MoveTo(local + 64);
  const uint64_t near = process.Words({0, start + 3}) + 8;
  process.MoveTo(local + 128);
  process.Words({0, start + 4});
  const auto walk = [&](uint64_t* id) {
    process.registers.rip = leaf;
    return process.kernel.Walk(process.registers, id);
  };

  uint64_t first = 0;
  uint64_t id = 0;
  const std::vector<uint64_t> frames = {leaf, pushes + 1, by_rbp + 2, start + 3};
  EXPECT_EQ(Frames(walk(&first)), frames);
  walk(&id);  // the rules are in the cache now
  process.kernel.calls = {};
  process.kernel.WriteWord(local, 56);
  EXPECT_EQ(Frames(walk(&id)), frames);
  EXPECT_EQ(id, first);
  EXPECT_EQ(process.kernel.calls.read_user, 1);
  const uint64_t lookups = process.kernel.calls.lookup;

  // Another frame, by a saved RBP alone.
  process.kernel.WriteWord(saved_rbp, local + 128);
  EXPECT_THAT(Frames(walk(&id)), ElementsAre(leaf, pushes + 1, by_rbp + 2, start + 4));
  EXPECT_NE(id, first);
  process.kernel.WriteWord(saved_rbp, local + 64);
  EXPECT_EQ(Frames(walk(&id)), frames);
  EXPECT_EQ(id, first);
  // Another return address.
  process.kernel.WriteWord(near, start + 5);
  EXPECT_THAT(Frames(walk(&id)), ElementsAre(leaf, pushes + 1, by_rbp + 2, start + 5));
  process.kernel.WriteWord(near, start + 3);
  EXPECT_EQ(Frames(walk(&id)), frames);

  // Other mappings, other books, other registers: the walk looks up the rules again.
  process.kernel.calls = {};
  walk(&id);
  EXPECT_EQ(process.kernel.calls.lookup, lookups);
  process.kernel.process.mappings++;
  EXPECT_EQ(Frames(walk(&id)), frames);
  EXPECT_GT(process.kernel.calls.lookup, 2 * lookups);
  EXPECT_EQ(id, first);
  process.kernel.process.identity.id++;
  EXPECT_EQ(Frames(walk(&id)), frames);
  EXPECT_NE(id, first);
  process.kernel.process.identity.id--;
  process.registers.rip = leaf + 1;
  EXPECT_EQ(process.kernel.Walk(process.registers).frames[0], leaf + 1);
  process.registers.rsp() = near;
  EXPECT_THAT(Frames(walk(&id)), ElementsAre(leaf, start + 3));
}

// More words than are kept, and more frames than fit.
TEST(UnwindWalk, DeepStacksAgain) {
  for (const int depth : {15, 16, 17, 31, 32, 33, 40, HEAPTAP_MAX_FRAMES - 2, HEAPTAP_MAX_FRAMES + 10}) {
    Simulation process;
    const uint64_t pushes = process.Function(Rule(HEAPTAP_CFA_RSP, 2, HEAPTAP_RBP_AT_CFA, -2));
    const uint64_t start = process.Function(kEnd);
    process.Load();
    for (int i = 0; i < depth; i++) process.Words({static_cast<uint64_t>(i), pushes + 1 + i % 8});
    process.Words({0, start + 1});
    uint64_t first = 0;
    uint64_t again = 0;
    process.registers.rip = pushes;
    const heaptap_stack stack = process.kernel.Walk(process.registers, &first);
    EXPECT_EQ(stack.count, std::min(depth + 2, HEAPTAP_MAX_FRAMES));
    EXPECT_EQ(Frames(process.kernel.Walk(process.registers, &again)), Frames(stack));
    EXPECT_EQ(again, first);
    // The outermost frame is another.
    process.kernel.WriteWord(process.next() - 8, start + 2);
    const heaptap_stack other = process.kernel.Walk(process.registers, &again);
    EXPECT_EQ(other.frames[other.count - 1], start + 2);
    EXPECT_NE(again, first);
  }
}

TEST(UnwindWalk, ReturnAddressBelongsToTheCallBeforeIt) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t caller = process.Function(Rule(HEAPTAP_CFA_RSP, 2));  // ends with the call
  process.Function(0);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({caller + kFunctionBytes, 0, start + 1});
  EXPECT_THAT(Frames(process.Walk(leaf)), ElementsAre(leaf, caller + kFunctionBytes, start + 1));
}

TEST(UnwindWalk, LazilyBoundCalls) {
  for (const uint32_t kind : {HEAPTAP_CFA_PLT, HEAPTAP_CFA_PLT2}) {
    Simulation process;
    const uint64_t stub = process.Function(Rule(kind));
    const uint64_t one = process.Function(kEnd);
    const uint64_t two = process.Function(kEnd);
    process.Load();
    process.Words({one + 1, two + 1});
    const uint64_t pushed = kind == HEAPTAP_CFA_PLT ? 11 : 10;
    EXPECT_THAT(Frames(process.Walk(stub + pushed - 1)), ElementsAre(stub + pushed - 1, one + 1));
    EXPECT_THAT(Frames(process.Walk(stub + pushed)), ElementsAre(stub + pushed, two + 1));
  }
}

TEST(UnwindWalk, StackPointerOnTheStack) {
  Simulation process;
  const uint64_t by_rsp = process.Function(Rule(HEAPTAP_CFA_DEREF_RSP, heaptap_unwind_pair(2, 1)));
  const uint64_t by_rbp =
      process.Function(Rule(HEAPTAP_CFA_DEREF_RBP, heaptap_unwind_pair(-1, 0), HEAPTAP_RBP_AT_RBP, 0));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  const uint64_t begin = process.next();
  process.Words({0, 0, begin + 64});
  process.MoveTo(begin + 64);
  process.Words({by_rbp + 3});  // *(RSP + 16) + 8 is the CFA
  process.Words({0, begin + 256, 99});
  process.registers.rbp() = process.next() - 8;
  process.kernel.WriteWord(begin + 248, start + 2);
  EXPECT_THAT(Frames(process.Walk(by_rsp)), ElementsAre(by_rsp, by_rbp + 3, start + 2));
}

class SignalTest : public ::testing::TestWithParam<bool> {};

// A handler, perhaps on a separate stack below or above, that interrupted code with its CFA in a register.
TEST_P(SignalTest, RegistersOfTheInterruptedFrame) {
  for (const uint64_t own_stack : {uint64_t{0}, uint64_t{0x20000000}, kStackTop + 16 * kPage}) {
    for (uint32_t number = 0; number < 16; number++) {
      Simulation process;
      const uint64_t handler = process.Function(kPlain);
      const uint64_t restorer = process.Function(Rule(HEAPTAP_CFA_SIGNAL), kLibrary);
      process.Function(0);
      const uint32_t rule =
          GetParam() ? Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(static_cast<int>(number), 2))
                     : Rule(HEAPTAP_CFA_RSP, 8, HEAPTAP_RBP_SAME, static_cast<int>(number), HEAPTAP_RA_REGISTER);
      const uint64_t interrupted = process.Function(rule);
      const uint64_t start = process.Function(kEnd);
      process.Load();

      uint64_t at = process.next();
      Registers before;
      before.rip = interrupted;  // its first instruction comes next: readers take 1 off the frame
      before.rsp() = at + 64 * 8;
      if (GetParam()) {
        before.numbers[number] = before.rsp() + 64;
        process.kernel.WriteWord(before.numbers[number] + 8, start + 1);
      } else {
        before.numbers[number] = number == 7 ? before.rsp() : start + 1;
      }
      if (own_stack != 0) {
        process.kernel.memory[own_stack].resize(kPage);
        process.kernel.mappings.push_back({.start = own_stack, .end = own_stack + kPage});
        at = own_stack;
      }
      process.kernel.WriteWord(at, restorer + 8);
      WriteSignalFrame(process.kernel, at + 8, before);
      process.registers.rsp() = at;
      heaptap_stack stack = process.Walk(handler);
      // RSP, taken for the return address, is one in no code.
      if (!GetParam() && number == 7) {
        EXPECT_THAT(Frames(stack), ElementsAre(handler, restorer + 8, interrupted + 1));
        EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_CODE);
        continue;
      }
      EXPECT_THAT(Frames(stack), ElementsAre(handler, restorer + 8, interrupted + 1, start + 1)) << number;
      EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CfaOrReturnAddress, SignalTest, ::testing::Bool());

// A call through a null pointer ends in a signal. The stack goes on at the call.
TEST(UnwindWalk, ACallThroughNull) {
  Simulation process;
  const uint64_t handler = process.Function(kPlain);
  const uint64_t restorer = process.Function(Rule(HEAPTAP_CFA_SIGNAL), kLibrary);
  process.Function(0);
  const uint64_t caller = process.Function(Rule(HEAPTAP_CFA_RBP, 2, HEAPTAP_RBP_AT_CFA, -2));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  Registers before;
  before.rip = 0;
  before.rsp() = process.stack_begin() + 1024;
  before.rbp() = process.stack_begin() + 1056;
  process.kernel.WriteWord(before.rsp(), caller + 3);
  process.kernel.WriteWord(before.rbp() + 8, start + 1);
  process.kernel.WriteWord(process.stack_begin(), restorer + 8);
  WriteSignalFrame(process.kernel, process.stack_begin() + 8, before);
  heaptap_stack stack = process.Walk(handler);
  EXPECT_THAT(Frames(stack), ElementsAre(handler, restorer + 8, caller + 3, start + 1));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);

  before.rsp() = kStackTop;
  WriteSignalFrame(process.kernel, process.stack_begin() + 8, before);
  stack = process.Walk(handler);
  EXPECT_THAT(Frames(stack), ElementsAre(handler, restorer + 8));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_MEMORY);
}

TEST(UnwindWalk, RegistersOfFrame0) {
  for (int number = 0; number < 16; number++) {
    Simulation process;
    const uint64_t by_register = process.Function(Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(number, 1)));
    const uint64_t start = process.Function(kEnd);
    process.Load();
    process.Words({start + 1});
    process.registers.numbers[number] = process.stack_begin();
    EXPECT_THAT(Frames(process.Walk(by_register)), ElementsAre(by_register, start + 1)) << number;
  }
}

TEST(UnwindWalk, ReturnAddressInARegister) {
  Simulation process;
  const uint64_t popped =
      process.Function(Rule(HEAPTAP_CFA_RSP, 0, HEAPTAP_RBP_SAME, 10, HEAPTAP_RA_REGISTER));  // CFA is RSP itself
  const uint64_t caller = process.Function(kPlain);
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.registers.numbers[10] = caller + 1;
  process.Words({start + 1});
  EXPECT_THAT(Frames(process.Walk(popped)), ElementsAre(popped, caller + 1, start + 1));
}

TEST(UnwindWalk, AboveFrame0RegistersAreLost) {
  for (const uint32_t rule : {Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(12, 1)),
                              Rule(HEAPTAP_CFA_RSP, 1, HEAPTAP_RBP_SAME, 12, HEAPTAP_RA_REGISTER)}) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    const uint64_t caller = process.Function(rule);
    process.Load();
    process.Words({caller + 1});
    process.registers.numbers[12] = process.next();
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf, caller + 1));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_REGISTER);
  }
}

TEST(UnwindWalk, FunctionsWithLargeArrays) {
  for (const uint64_t words : {32768, 37508, 98304, 360447}) {
    Simulation process(words * 8 / kPage + 8);
    const uint64_t far = words - HEAPTAP_FAR_WORDS;
    const uint64_t leaf =
        process.Function(Rule(HEAPTAP_CFA_FAR + far / HEAPTAP_FAR_WORDS_PER_KIND,
                              static_cast<int32_t>(far % HEAPTAP_FAR_WORDS_PER_KIND), HEAPTAP_RBP_AT_CFA, -2));
    const uint64_t start = process.Function(kEnd);
    process.Load();
    process.kernel.WriteWord(process.stack_begin() + (words - 1) * 8, start + 1);
    for (int i = 0; i < 2; i++) {
      heaptap_stack stack = process.Walk(leaf);
      EXPECT_THAT(Frames(stack), ElementsAre(leaf, start + 1)) << words;
      EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    }
  }
}

// --- code without rules ----------------------------------------------------------------------------------------------

TEST(UnwindWalk, FramePointersWhereNothingElseIs) {
  for (const Place place : {kNoFile, kProgram}) {
    Simulation process;
    const uint64_t leaf = process.Function(0, place);
    const uint64_t caller = process.Function(0, place);
    const uint64_t start = process.Function(kEnd, kLibrary);
    process.Load();
    process.SetState(kProgram, HEAPTAP_FILE_WITHOUT_TABLE);
    const uint64_t outer = process.Words({0x1234, start + 1});
    const uint64_t inner = process.Words({outer, caller + 1});
    process.kernel.WriteWord(outer, 0);
    process.registers.rsp() = process.stack_begin();
    process.registers.rbp() = inner;
    // Inner lies above outer: a frame pointer that leads downwards leads nowhere.
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf, caller + 1));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_RULE);

    const uint64_t good = process.Words({process.next() + 32, caller + 1, 0, 0, 7, start + 1});
    process.registers.rbp() = good;
    stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf, caller + 1, start + 1));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
  }
}

// Go calls C on another stack, which lies above the goroutine's.
TEST(UnwindWalk, FramePointersOfGoMayLeadToAnotherStack) {
  Simulation process;
  const uint64_t leaf = process.Function(HEAPTAP_RULE_FRAME_POINTER);
  const uint64_t caller = process.Function(HEAPTAP_RULE_FRAME_POINTER);
  const uint64_t start = process.Function(HEAPTAP_RULE_FRAME_POINTER);
  process.Load();
  const uint64_t outer = process.Words({0, start + 1});
  const uint64_t inner = process.Words({outer, caller + 1});
  process.registers.rsp() = process.next();
  process.registers.rbp() = inner;
  for (int i = 0; i < 2; i++) {
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf, caller + 1, start + 1));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
  }
  process.kernel.WriteWord(outer, inner);
  heaptap_stack stack = process.Walk(leaf);
  EXPECT_EQ(stack.end, HEAPTAP_STACK_TRUNCATED) << "a circle";
  process.registers.rbp() = kStackTop;
  stack = process.Walk(leaf);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_RULE);
}

TEST(UnwindWalk, FramePointersThatLeadNowhere) {
  Simulation process;
  const uint64_t leaf = process.Function(0, kNoFile);
  const uint64_t begin = process.stack_begin();
  process.registers.rsp() = begin + 64;
  for (const uint64_t rbp :
       {begin, begin + 65, kStackTop, kStackTop - 8, uint64_t{1}, uint64_t{1} << 47, ~uint64_t{7}, ~uint64_t{0}}) {
    process.registers.rbp() = rbp;
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_RULE) << rbp;
  }
  process.registers.rbp() = 0;
  EXPECT_EQ(process.Walk(leaf).end, HEAPTAP_STACK_WHOLE);
}

TEST(UnwindWalk, FileWithoutRuleThereIsCodeWithoutRule) {
  Simulation process;
  process.Function(kPlain);
  process.tables[kProgram].rows[0].pc = 32;
  process.Load();
  EXPECT_EQ(process.Walk(kCodeAt[kProgram] + 31).end, HEAPTAP_STACK_WHOLE);  // RBP is 0
  process.registers.rsp() = 8;
  EXPECT_EQ(process.Walk(kCodeAt[kProgram] + 32).end, HEAPTAP_STACK_NO_MEMORY);
}

// Code whose rule has another form need not have a frame pointer, whatever is in RBP.
TEST(UnwindWalk, ARuleThatCannotBeEncodedEndsTheWalk) {
  Simulation process;
  const uint64_t leaf = process.Function(Rule(HEAPTAP_CFA_UNKNOWN));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  for (const uint64_t rbp : {process.Words({0, start + 1}), uint64_t{0}}) {
    process.registers.rbp() = rbp;
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_RULE);
  }
}

// The start routine of makecontext(3) begins at the return address: no rule covers what lies before it.
TEST(UnwindWalk, AStackThatWasMadeToBeginSomewhere) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t pointers = process.Function(0, kNoFile);
  process.Function(0);
  const uint64_t start = process.Function(kPlain);
  process.Load();
  process.Words({start, start});
  for (int i = 0; i < 2; i++) {
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf, start));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
  }
  // What a frame pointer leads to may be a pointer to the function, also where the cache knows the address.
  process.registers.rbp() = process.Words({1, start});
  for (int i = 0; i < 2; i++) {
    heaptap_stack stack = process.Walk(pointers);
    EXPECT_THAT(Frames(stack), ElementsAre(pointers, start));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_RULE);
  }
}

// --- ends ------------------------------------------------------------------------------------------------------------

TEST(UnwindWalk, ReturnAddress0IsTheEnd) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  process.Words({0});
  heaptap_stack stack = process.Walk(leaf);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
}

TEST(UnwindWalk, NoCode) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  for (const uint64_t address :
       {uint64_t{0x1000}, process.stack_begin(), ~uint64_t{0}, kCodeAt[kProgram], kCodeAt[kProgram] + kCodeBytes + 1}) {
    process.MoveTo(process.stack_begin());
    process.Words({address});
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf));  // what is no code is no frame
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_CODE);
  }
  EXPECT_EQ(process.Walk(0x1000).end, HEAPTAP_STACK_NO_CODE);
}

TEST(UnwindWalk, NoMemory) {
  const uint32_t rules[] = {kPlain,
                            Rule(HEAPTAP_CFA_RSP, 1, HEAPTAP_RBP_AT_CFA, 0),
                            Rule(HEAPTAP_CFA_RSP, 1, HEAPTAP_RBP_AT_RBP, 0),
                            Rule(HEAPTAP_CFA_DEREF_RSP, heaptap_unwind_pair(1, 0)),
                            Rule(HEAPTAP_CFA_DEREF_RBP, heaptap_unwind_pair(1, 0)),
                            Rule(HEAPTAP_CFA_SIGNAL)};
  for (const uint32_t rule : rules) {
    Simulation process;
    const uint64_t leaf = process.Function(rule);
    process.Load();
    process.registers.rsp() = rule == kPlain ? kStackTop : kStackTop - 8;
    process.registers.rbp() = kStackTop;
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_NO_MEMORY) << rule;
  }
}

TEST(UnwindWalk, Stuck) {
  for (const uint32_t rule : {Rule(HEAPTAP_CFA_RSP, 0), Rule(HEAPTAP_CFA_RSP, -3), Rule(HEAPTAP_CFA_RBP, -1)}) {
    Simulation process;
    const uint64_t leaf = process.Function(rule);
    process.Load();
    process.registers.rsp() = process.registers.rbp() = process.stack_begin() + 256;
    heaptap_stack stack = process.Walk(leaf);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_STUCK);
  }
}

// A signal frame may point anywhere, also to itself.
TEST(UnwindWalk, EndsInACircleOfSignalFrames) {
  Simulation process;
  const uint64_t restorer = process.Function(Rule(HEAPTAP_CFA_SIGNAL));
  process.Load();
  Registers circle;
  circle.rip = restorer;
  circle.rsp() = process.stack_begin();
  WriteSignalFrame(process.kernel, process.stack_begin(), circle);
  heaptap_stack stack = process.Walk(restorer);
  EXPECT_EQ(stack.count, HEAPTAP_MAX_FRAMES);
  EXPECT_EQ(stack.end, HEAPTAP_STACK_TRUNCATED);
}

TEST(UnwindWalk, AsManyFramesAsFit) {
  for (const uint64_t frames : {126, 127, 128, 129, 172, 173, 174, 200, 219, 220, 1023, 1024, 1025, 1500}) {
    for (const bool ends_with_0 : {false, true}) {
      Simulation process;
      const uint64_t plain = process.Function(kPlain);
      const uint64_t start = process.Function(kEnd);
      process.Load();
      std::vector<uint64_t> expected = {plain};
      for (uint64_t i = 1; i < frames; i++) {
        expected.push_back(i + 1 == frames && !ends_with_0 ? start + 1 : plain + i % 15 + 1);
        process.Words({expected.back()});
      }
      process.Words({0});
      heaptap_stack stack = process.Walk(plain);
      EXPECT_EQ(stack.end, frames <= HEAPTAP_MAX_WALK ? HEAPTAP_STACK_WHOLE : HEAPTAP_STACK_TRUNCATED) << frames;
      EXPECT_EQ(Frames(stack), KeptFrames(expected)) << frames;
    }
  }
}

// What another process's walk left in the scratch buffer must not be used as memory.
TEST(UnwindWalk, ShowsNoMemoryOfTheLastWalk) {
  Simulation process;
  const uint64_t plain = process.Function(kPlain);
  const uint64_t unwind_rbp = process.Function(Rule(HEAPTAP_CFA_RBP, 1));
  process.Load();
  for (uint64_t i = 0; i < 64; i++) process.Words({0xdead0000 + i});
  for (uint64_t address = 0; address < 1024; address++) {
    for (const uint64_t base : {uint64_t{0}, uint64_t{1} << 63, uint64_t{0} - 512}) {
      process.kernel.process.identity.id = 2;
      process.registers.rsp() = process.stack_begin();
      process.Walk(plain);
      process.kernel.process.identity.id = 4;
      process.registers.rsp() = base + address;
      EXPECT_THAT(Frames(process.Walk(plain)), SizeIs(1)) << base + address;
      process.registers.rsp() = 0;
      process.registers.rbp() = base + address;
      EXPECT_THAT(Frames(process.Walk(unwind_rbp)), SizeIs(1)) << base + address;
    }
  }
}

}  // namespace
}  // namespace heaptap::harness
