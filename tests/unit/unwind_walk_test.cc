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

// The constants of bpf/code.bpf.h.
extern "C" uint32_t search_rows(const heaptap_rows* node, uint32_t pc);

namespace heaptap::harness {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const uint32_t kEnd = Rule(HEAPTAP_CFA_END);
const uint32_t kPlain = Rule(HEAPTAP_CFA_RSP, 1);

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

// --- the rule cache --------------------------------------------------------------------------------------------------

struct CachedRule {
  uint64_t check;
  uint64_t rule;
};

class RuleCache : public ::testing::Test {
 protected:
  RuleCache() {
    leaf_ = process_.Function(kPlain);
    caller_ = process_.Function(Rule(HEAPTAP_CFA_RSP, 3));
    start_ = process_.Function(kEnd);
    process_.Load();
    process_.Words({caller_ + 1, 0, 0, start_ + 1});
    process_.kernel.before_lookup = [this](std::string_view map) { rows_ += map == "rows"; };
  }

  // What a walk had to look for.
  struct Searches {
    uint64_t mappings = 0;
    uint64_t rows = 0;
    bool operator==(const Searches&) const = default;
  };
  Searches Walk() {
    const uint64_t mappings = process_.kernel.calls.find_mapping;
    const uint64_t rows = rows_;
    process_.registers.rbp()++;  // else the stack of the latest walk is taken again
    heaptap_stack stack = process_.Walk(leaf_);
    EXPECT_THAT(Frames(stack), ElementsAre(leaf_, caller_ + 1, start_ + 1));
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    return {process_.kernel.calls.find_mapping - mappings, rows_ - rows};
  }
  template <typename Change>
  void ChangeEntries(const char* map, Change change) {
    process_.kernel.map(map).ForEach<CachedRule>(change);
  }

  Simulation process_;
  uint64_t leaf_, caller_, start_;
  uint64_t rows_ = 0;
};

TEST_F(RuleCache, SecondWalkFindsAll) {
  EXPECT_EQ(Walk(), (Searches{.mappings = 1, .rows = 3}));
  EXPECT_EQ(Walk(), Searches());
  EXPECT_EQ(Walk(), Searches());
}

TEST_F(RuleCache, OnlyMappingsAreLookedForAgainWhenTheyChange) {
  Walk();
  process_.kernel.lock_sequence++;
  EXPECT_EQ(Walk(), Searches{.mappings = 1});
  EXPECT_EQ(Walk(), Searches());
  EXPECT_EQ(process_.kernel.process.mappings, 2);  // the first walk counted one
  process_.kernel.process.mappings++;              // as the program `invalidate_rules` does
  EXPECT_EQ(Walk(), Searches{.mappings = 1});
  EXPECT_EQ(Walk(), Searches());
}

TEST_F(RuleCache, ProcessesShareRowsAlone) {
  Walk();
  const heaptap_process first = process_.kernel.process;
  process_.kernel.process.identity.id += 2;
  EXPECT_EQ(Walk(), Searches{.mappings = 1});
  process_.kernel.process = first;
  EXPECT_EQ(Walk(), Searches());
}

// The same code at another place, and other code at its place.
TEST_F(RuleCache, CodeThatMovesTakesItsRowsAlong) {
  constexpr uint64_t kFarther = 0x100000;
  Walk();
  Mapping& mapping = process_.kernel.mappings[kProgram];
  mapping.start += kFarther;
  mapping.end += kFarther;
  process_.kernel.lock_sequence++;
  const uint64_t rows = rows_;
  process_.kernel.WriteWord(process_.registers.rsp(), caller_ + kFarther + 1);
  process_.kernel.WriteWord(process_.registers.rsp() + 24, start_ + kFarther + 1);
  const heaptap_stack stack = process_.Walk(leaf_ + kFarther);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf_ + kFarther, caller_ + kFarther + 1, start_ + kFarther + 1));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
  EXPECT_EQ(rows_, rows);
  EXPECT_EQ(process_.Walk(leaf_).end, HEAPTAP_STACK_NO_CODE);
}

TEST_F(RuleCache, ANewTableOfAFileHasItsOwnRows) {
  Walk();
  process_.tables[kProgram].rows[0].rule = Rule(HEAPTAP_CFA_RSP, 4);  // of the leaf
  process_.Load();
  process_.kernel.process.mappings++;
  EXPECT_THAT(Frames(process_.Walk(leaf_)), ElementsAre(leaf_, start_ + 1));
}

// More files than a walk knows mappings of, each with its own rule at the same offset.
TEST_F(RuleCache, StacksThroughManyFiles) {
  constexpr int kFiles = 7;
  std::vector<uint64_t> frames = {leaf_};
  process_.MoveTo(process_.registers.rsp());
  for (int i = 0; i < kFiles; i++) {
    const heaptap_file_key key = {.inode = 1000u + i, .device = 0x800001, .generation = 0};
    const uint64_t start = 0x7e0000000000 + i * 0x10000;
    process_.kernel.mappings.push_back({.start = start, .end = start + 0x1000, .executable = true, .file = key});
    unwind::FileTable table;
    table.rows.push_back({.pc = 0, .rule = Rule(HEAPTAP_CFA_RSP, 2 + i)});
    process_.Load(key, table);
    process_.Words({start + 9});  // the return address, and the frame
    for (int word = 0; word <= i; word++) process_.Words({0});
    frames.push_back(start + 9);
  }
  process_.Words({start_ + 1});
  frames.push_back(start_ + 1);
  for (int i = 0; i < 3; i++) {
    const heaptap_stack stack = process_.Walk(leaf_);
    EXPECT_EQ(Frames(stack), frames);
    EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);
    process_.kernel.lock_sequence++;
  }
}

TEST_F(RuleCache, TornEntriesDoNotCheck) {
  const auto other_rule = [](CachedRule& entry) { entry.rule ^= 0x10000; };
  const auto other_check = [](CachedRule& entry) { entry.check ^= 0x10000; };
  const auto no_check = [](CachedRule& entry) { entry.check = 0; };
  Walk();
  for (const std::function<void(CachedRule&)>& tear :
       {std::function<void(CachedRule&)>(other_rule), std::function<void(CachedRule&)>(other_check),
        std::function<void(CachedRule&)>(no_check)}) {
    ChangeEntries("rule_cache", tear);
    EXPECT_EQ(Walk(), Searches());  // the rows are known
    ChangeEntries("rule_cache", tear);
    ChangeEntries("row_cache", tear);
    EXPECT_EQ(Walk(), Searches{.rows = 3});
  }
  EXPECT_EQ(Walk(), Searches());
}

TEST_F(RuleCache, KeepsOnlyRules) {
  process_.kernel.FindRule(0x1000);  // no code
  process_.SetState(kProgram, HEAPTAP_FILE_OUTSIDE);
  process_.kernel.FindRule(leaf_);
  for (const char* map : {"rule_cache", "row_cache"}) {
    ChangeEntries(map, [](const CachedRule& entry) {
      EXPECT_EQ(entry.check, 0);
      EXPECT_EQ(entry.rule, 0);
    });
  }
  process_.Load();
  EXPECT_EQ(Walk(), Searches{.rows = 3});
}

// The collector unloads a table while a program uses it, and reuses its memory for another one.
TEST_F(RuleCache, KeepsNothingOfATableThatIsUnloaded) {
  bool unload = true;
  process_.kernel.before_lookup = [&](std::string_view map) {
    if (map != "rows" || !std::exchange(unload, false)) return;
    process_.SetState(kProgram, HEAPTAP_FILE_OUTSIDE);
    process_.kernel.map("rows").ForEach<heaptap_rows>([](heaptap_rows& node) {
      for (heaptap_row& row : node.rows) row.rule = Rule(HEAPTAP_CFA_RSP, 2);
    });
  };
  EXPECT_EQ(process_.Walk(leaf_).end, HEAPTAP_STACK_UNFINISHED);
  process_.kernel.before_lookup = nullptr;
  for (const char* map : {"rule_cache", "row_cache"})
    ChangeEntries(map, [](const CachedRule& entry) { EXPECT_EQ(entry.rule, 0); });
  process_.Load();
  Walk();
}

// --- missing tables --------------------------------------------------------------------------------------------------

class Tables : public ::testing::Test {
 protected:
  Tables() {
    leaf_ = process_.Function(kPlain);
    caller_ = process_.Function(kPlain, kLibrary);
    start_ = process_.Function(kEnd);
    process_.Words({caller_ + 1, start_ + 1});
  }

  Kernel& kernel() { return process_.kernel; }
  uint32_t StateOf(Place place) {
    const auto* file = kernel().Find<heaptap_file>("files", kKeys[place]);
    return file == nullptr ? ~0u : file->state;
  }
  uint64_t Lost(uint32_t reason) {
    const auto* loss = kernel().Find<heaptap_loss>("losses", heaptap_loss_key{kernel().process.identity.id, reason, 0});
    return loss == nullptr ? 0 : loss->events;
  }

  Simulation process_;
  uint64_t leaf_, caller_, start_;
};

TEST_F(Tables, UnknownFileIsAskedForOnce) {
  process_.Load(kProgram);
  uint64_t ids[2];
  for (uint64_t& id : ids) {
    std::optional<heaptap_stack> stack = process_.Sample(leaf_, &id);
    ASSERT_TRUE(stack.has_value());
    EXPECT_THAT(Frames(*stack), ElementsAre(leaf_, caller_ + 1));
    EXPECT_EQ(stack->end, HEAPTAP_STACK_UNFINISHED);
  }
  EXPECT_NE(ids[0], ids[1]);  // each will be finished for itself
  EXPECT_EQ(StateOf(kLibrary), HEAPTAP_FILE_WANTED);

  std::vector<heaptap_event> events = kernel().TakeEvents();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].kind, HEAPTAP_EVENT_TABLE_WANTED);
  EXPECT_EQ(events[0].tgid, kernel().tgid);
  EXPECT_EQ(events[0].process_id, kernel().process.identity.id);
  EXPECT_EQ(events[0].argument, caller_);  // the call itself
  EXPECT_EQ(memcmp(events[0].memory, &kKeys[kLibrary], sizeof(kKeys[kLibrary])), 0);

  std::vector<RawStack> raw = kernel().TakeRawStacks();
  ASSERT_THAT(raw, SizeIs(2));
  EXPECT_EQ(raw[0].header.stack_id, ids[0]);
  EXPECT_EQ(raw[1].header.stack_id, ids[1]);

  process_.Load(kLibrary);
  std::optional<heaptap_stack> stack = process_.Sample(leaf_);
  EXPECT_EQ(stack->end, HEAPTAP_STACK_WHOLE);
  EXPECT_THAT(kernel().TakeRawStacks(), IsEmpty());
}

TEST_F(Tables, NoRoomForTheQuestion) {
  process_.Load(kProgram);
  kernel().ring("events").bytes = 64;
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(StateOf(kLibrary), ~0u);
  EXPECT_EQ(Lost(HEAPTAP_LOSS_EVENTS_FULL), 1);
  // The next one asks.
  kernel().ring("events").bytes = 1 << 20;
  process_.Sample(leaf_);
  EXPECT_EQ(StateOf(kLibrary), HEAPTAP_FILE_WANTED);
  EXPECT_THAT(kernel().TakeEvents(), SizeIs(1));
  EXPECT_THAT(kernel().TakeRawStacks(), SizeIs(2));
}

TEST_F(Tables, AnotherProgramAsksFirst) {
  process_.Load(kProgram);
  kernel().before_update = [&](std::string_view map) {
    if (map == "files") process_.SetState(kLibrary, HEAPTAP_FILE_WANTED);
  };
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FILES_FULL), 0);
}

TEST_F(Tables, NoRoomForAnotherFile) {
  process_.Load(kProgram);
  kernel().map("files").max_entries = 1;
  heaptap_stack stack = *process_.Sample(leaf_);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf_, caller_ + 1));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_WHOLE);  // by its frame pointer, which is 0
  EXPECT_EQ(Lost(HEAPTAP_LOSS_FILES_FULL), 1);
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
}

TEST_F(Tables, OutsideMeansRaw) {
  process_.Load();
  process_.SetState(kLibrary, HEAPTAP_FILE_OUTSIDE);
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_THAT(kernel().TakeRawStacks(), SizeIs(1));
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
  EXPECT_EQ(StateOf(kLibrary), HEAPTAP_FILE_OUTSIDE);
}

TEST_F(Tables, WithoutTableMeansFramePointers) {
  process_.Load();
  process_.SetState(kLibrary, HEAPTAP_FILE_WITHOUT_TABLE);
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_WHOLE);
  EXPECT_THAT(kernel().TakeRawStacks(), IsEmpty());
}

TEST_F(Tables, MissingNodeMeansRaw) {
  for (uint32_t i = 0; i < 1000; i++) process_.Function(i % 2 ? kPlain : kEnd, kLibrary);
  process_.Load();
  const uint32_t table = kernel().Find<heaptap_file>("files", kKeys[kLibrary])->table;
  kernel().Remove("rows", heaptap_rows_key{table, 1});
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_THAT(kernel().TakeRawStacks(), SizeIs(1));
  EXPECT_THAT(kernel().TakeEvents(), IsEmpty());
}

TEST_F(Tables, LockedMappingsMeanRaw) {
  process_.Load();
  kernel().busy = kMappingTries - 1;
  EXPECT_EQ(process_.Sample(leaf_)->end, HEAPTAP_STACK_WHOLE);
  kernel().process.mappings++;
  kernel().busy = kMappingTries;
  heaptap_stack stack = *process_.Sample(leaf_);
  EXPECT_THAT(Frames(stack), ElementsAre(leaf_));
  EXPECT_EQ(stack.end, HEAPTAP_STACK_UNFINISHED);
  EXPECT_EQ(kernel().busy, 0);
}

TEST_F(Tables, VdsoHasAKeyOfItsOwn) {
  process_.Load();
  kernel().mappings.push_back({.start = 0x7fff00000000,
                               .end = 0x7fff00002000,
                               .executable = true,
                               .file = {},
                               .file_offset = 0,
                               .is_vdso = true});
  unwind::FileTable table;
  table.rows = {{0x800, Rule(HEAPTAP_CFA_RSP, 2)}};
  process_.Load({HEAPTAP_VDSO_INODE, 0, 0}, table);
  EXPECT_THAT(Frames(process_.Walk(0x7fff00000900)), ElementsAre(0x7fff00000900, start_ + 1));
}

TEST_F(Tables, LastUseIsNoted) {
  process_.Load();
  kernel().time = 1000;
  process_.Walk(leaf_);
  EXPECT_GT(kernel().Find<heaptap_file>("files", kKeys[kLibrary])->last_used, 1000);
  process_.SetState(kLibrary, HEAPTAP_FILE_OUTSIDE);
  kernel().process.mappings++;
  kernel().time = 5000;
  process_.Walk(leaf_);
  EXPECT_GT(kernel().Find<heaptap_file>("files", kKeys[kLibrary])->last_used, 5000);
}

// --- trees -----------------------------------------------------------------------------------------------------------

class TreeTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(TreeTest, SearchFindsWhatTheTableSays) {
  const uint32_t count = GetParam();
  Simulation process;
  unwind::FileTable table;
  table.base = 0x5000;
  uint32_t pc = 3;
  for (uint32_t i = 0; i < count; i++) {
    table.rows.push_back({pc, i + 1});
    pc += 1 + i % 5;
  }
  process.Load(kKeys[kLibrary], table);
  const auto* file = process.kernel.Find<heaptap_file>("files", kKeys[kLibrary]);
  EXPECT_EQ(process.kernel.map("rows").size(), unwind::CountNodes(count));
  EXPECT_EQ(file->levels, count <= 504 ? 1 : count <= 504 * 504 ? 2 : 3);
  uint64_t differences = 0;
  const auto check = [&](uint64_t offset) {
    differences += host_find_in_table(file, offset) != unwind::RuleAtOffset(table, offset);
  };
  for (const heaptap_row& row : table.rows) {
    for (const uint64_t at : {row.pc - 1, row.pc, row.pc + 1}) check(table.base + at);
  }
  for (const uint64_t offset : {uint64_t{0}, table.base - 1, table.base, table.base + (uint64_t{1} << 32),
                                table.base + 0xfffffffe, table.base + 0xffffffff, ~uint64_t{0}}) {
    check(offset);
  }
  EXPECT_EQ(differences, 0);
}

INSTANTIATE_TEST_SUITE_P(Rows, TreeTest,
                         ::testing::Values(1, 2, 255, 256, 257, 503, 504, 505, 1008, 1009, 504 * 504 - 1, 504 * 504,
                                           504 * 504 + 1, 300000));

TEST(SearchRows, EmptyNode) {
  heaptap_rows node;
  std::fill(std::begin(node.rows), std::end(node.rows), heaptap_row{~0u, 0});
  for (const uint32_t pc : {0u, 1u, ~0u - 1, ~0u}) EXPECT_EQ(search_rows(&node, pc), 0);
  EXPECT_EQ(search_rows(nullptr, 0), 0);
}

// --- raw stacks ------------------------------------------------------------------------------------------------------

TEST(RawStacks, AsManyChunksAsThereIsReasonFor) {
  const struct {
    uint64_t bytes;      // from RSP to the end of the mapping
    uint64_t arguments;  // above RSP; 0: none
  } cases[] = {
      {0x100, 0},
      {0x568, 0},
      {kPage, 0},
      {3 * kPage, 0},
      {4 * kPage, 0},
      {8 * kPage, 0},
      {9 * kPage, 0},
      {20 * kPage, 0},
      {kPage, 0x100},
      {4 * kPage, 0x400},
      {4 * kPage, 2 * kPage},
      {20 * kPage, kPage},
      {40 * kPage, 0},
      {63 * kPage, 0},
      {70 * kPage, 0},
  };
  for (const auto& one : cases) {
    Simulation process(70);
    const uint64_t leaf = process.Function(kPlain);
    const uint64_t caller = process.Function(kPlain, kLibrary);
    process.Load(kProgram);
    for (uint64_t at = process.stack_begin(); at < kStackTop; at += 8) process.Words({at * 0x9e3779b97f4a7c15});
    // Of the caller, that is where the walk ends.
    const uint64_t rsp = std::max((kStackTop - one.bytes) & ~uint64_t{7}, process.stack_begin() + 0x68);
    process.kernel.arguments = one.arguments == 0 ? 0 : rsp + one.arguments;
    process.registers.rsp() = rsp - 8;
    process.kernel.WriteWord(rsp - 8, caller + 9);
    for (int i = 0; i < 16; i++) {
      if (i != 7) process.registers.numbers[i] = 1000 + i;
    }
    uint64_t id = 0;
    process.Sample(leaf + 2, &id);
    std::vector<std::string> records = process.kernel.ring("raw_stacks").Take();
    ASSERT_THAT(records, SizeIs(1));
    heaptap_raw_stack raw;
    memcpy(&raw, records[0].data(), sizeof(raw));
    EXPECT_EQ(raw.process_id, process.kernel.process.identity.id);
    EXPECT_EQ(raw.stack_id, id);
    EXPECT_EQ(raw.tgid, process.kernel.tgid);
    EXPECT_EQ(raw.time, process.kernel.time);
    EXPECT_EQ(raw.rip_bits, 1);
    EXPECT_EQ(raw.frame.rip, caller + 9);
    EXPECT_EQ(raw.frame.rsp, rsp);
    EXPECT_EQ(raw.frame.rbp, 1006);
    EXPECT_EQ(raw.frame.others, HEAPTAP_UNWIND_OTHERS_LOST);
    EXPECT_EQ(memcmp(raw.registers, process.registers.numbers, sizeof(raw.registers)), 0);
    EXPECT_EQ(raw.reserved, 0);
    EXPECT_THAT(Frames(raw.stack), ElementsAre(leaf + 2, caller + 9));
    EXPECT_EQ(raw.stack.end, HEAPTAP_STACK_UNFINISHED);

    const uint64_t begin = rsp & ~uint64_t{HEAPTAP_CHUNK_BYTES - 1};
    const uint64_t reserved = records[0].size() - sizeof(raw);
    const uint64_t there = kStackTop - begin;
    EXPECT_EQ(raw.memory_begin, begin);
    EXPECT_EQ(raw.memory_bytes, std::min(reserved, there));
    EXPECT_EQ(
        memcmp(records[0].data() + sizeof(raw),
               process.kernel.memory[process.stack_begin()].data() + (begin - process.stack_begin()), raw.memory_bytes),
        0);
    // At least as much as needed, and not twice as much.
    const uint64_t top = process.kernel.arguments == 0 ? kStackTop : process.kernel.arguments;
    EXPECT_GE(reserved, std::min<uint64_t>(top - begin, HEAPTAP_MOST_STACK_CHUNKS * HEAPTAP_CHUNK_BYTES));
    EXPECT_LE(reserved, 2 * (top - begin) + HEAPTAP_CHUNK_BYTES);
  }
}

// A large array that was never written lies between the frames.
TEST(RawStacks, PagesThatAreNotThere) {
  Simulation process(16);
  const uint64_t leaf = process.Function(kPlain);
  std::vector<uint8_t> stack = std::move(process.kernel.memory[process.stack_begin()]);
  process.kernel.memory.clear();
  const uint64_t rsp = process.stack_begin() + 0x68;
  const uint64_t above = process.stack_begin() + 13 * kPage;
  process.kernel.memory[process.stack_begin()].assign(stack.begin(), stack.begin() + kPage);
  process.kernel.memory[above].assign(3 * kPage - 2048, 0xab);
  process.registers.rsp() = rsp;
  EXPECT_EQ(process.Sample(leaf)->end, HEAPTAP_STACK_UNFINISHED);
  std::vector<RawStack> raw = process.kernel.TakeRawStacks();
  ASSERT_THAT(raw, SizeIs(1));
  const heaptap_raw_stack& header = raw[0].header;
  EXPECT_EQ(header.memory_bytes, 16 * kPage - 2048);
  for (uint64_t chunk = 0; chunk < 64; chunk++) {
    const bool is_missing = (header.missing[0] >> chunk & 1) != 0;
    EXPECT_EQ(is_missing, (4 <= chunk && chunk < 52) || chunk >= 62) << chunk;
  }
  EXPECT_EQ(raw[0].memory[above - process.stack_begin()], 0xab);
  EXPECT_EQ(raw[0].memory.back(), 0xab);
}

// A process with a deep stack in a file whose table never arrives.
class DeepStack {
 public:
  DeepStack() : leaf_(process_.Function(kPlain)) { process_.registers.rsp() = process_.stack_begin() + 0x68; }

  Ring& ring() { return process_.kernel.ring("raw_stacks"); }
  // Each by another tally, so that each is sent. Returns the bytes that it took in the ring; 0: there was no room.
  uint64_t Sample(uint32_t tid, uint32_t uid = 1000) {
    process_.kernel.tid = tid;
    process_.kernel.uid = uid;
    const uint64_t before = ring().used();
    const uint32_t end = process_.Sample(leaf_)->end;
    EXPECT_EQ(end == HEAPTAP_STACK_NO_ROOM, ring().used() == before);
    return ring().used() - before;
  }

 private:
  Simulation process_{70};
  uint64_t leaf_;
};

// Another thread has locked the list of mappings.
TEST(RawStacks, AsMuchAsTheLatestCopyOfTheThreadOrTheMemoryTells) {
  Simulation process(8);
  const uint64_t leaf = process.Function(kPlain);
  const auto sample = [&](uint32_t tid, uint64_t below_top) {
    process.kernel.tid = tid;
    process.registers.rsp() = kStackTop - below_top;
    process.Sample(leaf);
    std::vector<std::string> records = process.kernel.ring("raw_stacks").Take();
    EXPECT_THAT(records, SizeIs(1));
    return (records.at(0).size() - sizeof(heaptap_raw_stack)) / HEAPTAP_CHUNK_BYTES;
  };
  EXPECT_EQ(sample(1, 2 * kPage), 16);
  process.kernel.busy = INT_MAX;
  EXPECT_EQ(sample(1, kPage + 8), 8);
  EXPECT_EQ(sample(1, 100), 2);
  // For another thread or another stack, only the end of the memory is known.
  EXPECT_EQ(sample(2, 100), 2);
  EXPECT_EQ(sample(3, 5 * kPage), HEAPTAP_RAW_STACK_CHUNKS);
  EXPECT_EQ(sample(1, 9 * kPage), 1);
}

TEST(RawStacks, LargeCopiesWhileTheRingIsRoomy) {
  DeepStack process;
  constexpr uint64_t kRingBytes = 16 << 20;
  process.ring().bytes = kRingBytes;
  const auto is_between = [](uint64_t least, uint64_t most) {
    return testing::AllOf(testing::Ge(least << 10), testing::Lt(most << 10));
  };
  // The stack has 280 KiB: whole copies in the first quarter of the ring, copies of 256 KiB up to half of it, then such
  // of 32 KiB.
  const auto sample_up_to = [&](uint64_t used, const auto& is_size) {
    while (process.ring().used() < used) ASSERT_THAT(process.Sample(1), is_size) << process.ring().used();
  };
  sample_up_to(kRingBytes / 4 - (2 << 20), is_between(384, 400));
  while (process.ring().used() < kRingBytes / 4) process.Sample(1);
  sample_up_to(kRingBytes / 2 - (512 << 10), is_between(257, 264));
  while (process.ring().used() < kRingBytes / 2 - (256 << 10)) process.Sample(1);
  sample_up_to(kRingBytes / 2, is_between(33, 40));
  process.ring().Take();
  EXPECT_THAT(process.Sample(1), is_between(384, 400));
}

// However many threads a user has.
TEST(RawStacks, NoUserTakesTheRoomOfOthers) {
  DeepStack process;
  process.ring().bytes = 4 << 20;
  for (uint32_t tid = 1; process.Sample(tid) != 0; tid++) {
  }
  EXPECT_GE(process.ring().used(), process.ring().bytes * 3 / 4);
  EXPECT_LT(process.ring().used(), process.ring().bytes * 7 / 8);
  int others = 0;
  for (uint32_t other = 1; other <= 10; other++) others += process.Sample(1, 1000 + other) != 0;
  EXPECT_EQ(others, 10);
  EXPECT_EQ(process.Sample(100), 0);
  // Once the collector has taken them, the ring is as good as empty.
  process.ring().Take();
  EXPECT_NE(process.Sample(1), 0);
}

TEST(RawStacks, AUserHasItsShareOfACrowdedRing) {
  constexpr uint64_t kBytes = 4 << 20;
  DeepStack process;
  process.ring().bytes = kBytes;
  uint32_t tid = 0;
  const auto take_share = [&] {
    for (uint32_t other = 2000; process.ring().used() < kBytes / 2; other++) ASSERT_NE(process.Sample(++tid, other), 0);
    const uint64_t before = process.ring().used();
    while (process.Sample(++tid) != 0) {
    }
    // Of the half that the others have left, it leaves a fifth.
    constexpr uint64_t kLargest = 4 * HEAPTAP_RAW_STACK_CHUNKS * HEAPTAP_CHUNK_BYTES;
    EXPECT_NEAR(process.ring().used() - before, kBytes / 2 * 4 / 5, kLargest);
    EXPECT_NE(process.Sample(++tid, 1001), 0) << "there is room for others";
  };
  take_share();
  // The collector takes all: the share begins anew.
  process.ring().Take();
  take_share();
}

// The collector always takes a part of what the user has in the ring, and never all.
TEST(RawStacks, AUserHasNoMoreThanTheRingHas) {
  constexpr uint64_t kBytes = 4 << 20;
  DeepStack process;
  process.ring().bytes = kBytes;
  for (int i = 0; i < 200; i++) {
    while (process.ring().used() < kBytes * 3 / 4) ASSERT_NE(process.Sample(1), 0) << i;
    while (process.ring().used() > kBytes / 2) process.ring().Take(1);
  }
}

// The target may set its stack pointer to anything.
TEST(RawStacks, StackPointersThatLeadNowhere) {
  for (const uint64_t rsp : {uint64_t{0}, uint64_t{8}, kCodeAt[kNoFile], kStackTop, kStackTop - 1, uint64_t{1} << 47,
                             uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - kPage, ~uint64_t{0} - 5 * kPage}) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    process.registers.rsp() = rsp;
    EXPECT_EQ(process.Sample(leaf)->end, HEAPTAP_STACK_UNFINISHED);
    std::vector<RawStack> raw = process.kernel.TakeRawStacks();
    ASSERT_THAT(raw, SizeIs(1));
    EXPECT_EQ(raw[0].header.memory_bytes, rsp == kStackTop - 1 ? HEAPTAP_CHUNK_BYTES : 0);
    EXPECT_EQ(raw[0].header.rip_bits, 0);
    EXPECT_EQ(raw[0].header.frame.others, HEAPTAP_UNWIND_OTHERS_LIVE);
  }
}

TEST(RawStacks, RingIsFull) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.kernel.ring("raw_stacks").bytes = 2 * HEAPTAP_RAW_STACK_CHUNKS * HEAPTAP_CHUNK_BYTES;
  uint64_t first = 0;
  uint64_t second = 0;
  std::optional<heaptap_stack> stack = process.Sample(leaf, &first);
  EXPECT_THAT(Frames(*stack), ElementsAre(leaf));
  EXPECT_EQ(stack->end, HEAPTAP_STACK_NO_ROOM);
  process.Sample(leaf, &second);
  EXPECT_EQ(first, second);  // nothing more will be known of either
  EXPECT_THAT(process.kernel.TakeRawStacks(), IsEmpty());
}

TEST(RawStacks, RingFillsAtTheLastMoment) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.kernel.before_lookup = [&](std::string_view map) {
    if (map == "stacks") process.kernel.ring("raw_stacks").bytes = 4096;
  };
  EXPECT_EQ(process.Sample(leaf)->end, HEAPTAP_STACK_NO_ROOM);
  EXPECT_THAT(process.kernel.TakeRawStacks(), IsEmpty());
}

TEST(RawStacks, NoRoomForTheStack) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.kernel.map("stacks").max_entries = 0;
  uint64_t id = 1;
  EXPECT_EQ(process.Sample(leaf, &id), std::nullopt);
  EXPECT_EQ(id, HEAPTAP_NO_STACK);
  EXPECT_THAT(process.kernel.TakeRawStacks(), IsEmpty());
}

TEST(RawStacks, ScratchIsReleased) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  for (int i = 0; i < 20; i++) EXPECT_TRUE(process.Sample(leaf).has_value());
}

}  // namespace
}  // namespace heaptap::harness
