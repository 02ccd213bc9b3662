// SPDX-License-Identifier: Apache-2.0
//
// Walks whose rules are all in the cache (walk_simple_frames in bpf/walk.bpf.h, bpf/code.bpf.h) find what a first walk
// finds; and how much of a stack a copy has (bpf/raw_stack.bpf.h). On the simulated kernel.
#include <climits>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/unwind_simulation.h"

namespace heaptap::harness {
namespace {

// Walks three times: the rules come from the tables, then from the cache. Returns the end of all.
uint32_t WalkAgain(Simulation& process, uint64_t rip, const std::vector<uint64_t>& frames) {
  uint32_t end = HEAPTAP_STACK_ENDS;
  for (int i = 0; i < 3; i++) {
    const heaptap_stack stack = process.Walk(rip);
    EXPECT_EQ(Frames(stack), frames) << "walk " << i;
    EXPECT_TRUE(i == 0 || stack.end == end) << "walk " << i;
    end = stack.end;
  }
  return end;
}

TEST(HostCachedWalk, ReturnAddressInARegister) {
  Simulation process;
  const uint64_t popped = process.Function(Rule(HEAPTAP_CFA_RSP, 1, HEAPTAP_RBP_SAME, 10, HEAPTAP_RA_REGISTER));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({start + 2});  // not the return address
  process.registers.numbers[10] = start + 1;
  EXPECT_EQ(WalkAgain(process, popped, {popped, start + 1}), HEAPTAP_STACK_WHOLE);
}

TEST(HostCachedWalk, AboveFrame0RegistersAreLost) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  const uint64_t caller = process.Function(Rule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(12, 1)));
  const uint64_t start = process.Function(kEnd);
  process.Load();
  process.Words({caller + 1, start + 1});
  process.registers.numbers[12] = process.stack_begin() + 8;
  EXPECT_EQ(WalkAgain(process, leaf, {leaf, caller + 1}), HEAPTAP_STACK_NO_REGISTER);
}

TEST(HostCachedWalk, Stuck) {
  for (const int words : {0, -1}) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    const uint64_t stuck = process.Function(Rule(HEAPTAP_CFA_RSP, words));
    process.Load();
    process.Words({stuck + 1, stuck + 1});
    EXPECT_EQ(WalkAgain(process, leaf, {leaf, stuck + 1}), HEAPTAP_STACK_STUCK);
  }
}

TEST(HostCachedWalk, OtherEnds) {
  const struct {
    uint64_t word;
    uint32_t end;
  } cases[] = {{0, HEAPTAP_STACK_WHOLE}, {0x1000, HEAPTAP_STACK_NO_CODE}};
  for (const auto& one : cases) {
    Simulation process;
    const uint64_t leaf = process.Function(kPlain);
    process.Load();
    process.Words({leaf + 1, one.word});
    EXPECT_EQ(WalkAgain(process, leaf, {leaf, leaf + 1}), one.end);
  }
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  process.registers.rsp() = kStackTop - 8;
  process.MoveTo(kStackTop - 8);
  process.Words({leaf + 1});
  EXPECT_EQ(WalkAgain(process, leaf, {leaf, leaf + 1}), HEAPTAP_STACK_NO_MEMORY);
  // No code at all: the place of the probe is a frame.
  EXPECT_EQ(WalkAgain(process, 0x1000, {0x1000}), HEAPTAP_STACK_NO_CODE);
}

TEST(HostCachedWalk, AsManyFramesAsFit) {
  for (const uint64_t frames :
       {uint64_t{HEAPTAP_MAX_FRAMES} - 1, uint64_t{HEAPTAP_MAX_FRAMES}, uint64_t{HEAPTAP_MAX_FRAMES} + 1,
        uint64_t{HEAPTAP_MAX_FRAMES} + 100, uint64_t{HEAPTAP_MAX_WALK}, uint64_t{HEAPTAP_MAX_WALK} + 1}) {
    Simulation process;
    const uint64_t plain = process.Function(kPlain);
    const uint64_t start = process.Function(kEnd);
    process.Load();
    std::vector<uint64_t> expected = {plain};
    for (uint64_t i = 1; i < frames; i++) {
      // Return addresses that do not take the place of one another in the cache.
      expected.push_back(i + 1 == frames ? start + 1 : plain + 1 + 4 * (i % 3));
      process.Words({expected.back()});
    }
    EXPECT_EQ(WalkAgain(process, plain, KeptFrames(expected)),
              frames <= HEAPTAP_MAX_WALK ? HEAPTAP_STACK_WHOLE : HEAPTAP_STACK_TRUNCATED)
        << frames;
  }
}

// The collector unloads a table while a program uses it, and loads it again under another number.
TEST(HostCachedWalk, ATableThatHasAnotherNumberMeanwhile) {
  Simulation process;
  const uint64_t leaf = process.Function(kPlain);
  process.Load();
  process.Words({leaf + 1, 0});
  bool is_first = true;
  process.kernel.before_lookup = [&](std::string_view map) {
    if (map == "rows" && std::exchange(is_first, false)) process.Load();
  };
  EXPECT_EQ(process.Sample(leaf)->end, HEAPTAP_STACK_UNFINISHED);
  process.kernel.before_lookup = nullptr;
  EXPECT_EQ(process.Sample(leaf)->end, HEAPTAP_STACK_WHOLE);
}

// --- kernels ---------------------------------------------------------------------------------------------------------

// The field that shows changes of the mappings: none, as before 6.4, one number, or one in a structure.
TEST(HostKernels, ChangesOfMappingsAreNoticedOnEachKernel) {
  const std::vector<std::set<std::string>> kernels = {
      {}, {"with_seqcount->mm_lock_seq.sequence"}, {"with_seqcount->mm_lock_seq.sequence", "with_int->mm_lock_seq"}};
  for (const std::set<std::string>& no_fields : kernels) {
    Simulation process;
    const uint64_t leaf = process.Function(kEnd);
    process.Load();
    process.kernel.no_fields = no_fields;
    process.kernel.lock_sequence = 5;
    process.Walk(leaf);
    process.Walk(leaf);
    EXPECT_EQ(process.kernel.process.mappings, 1);
    EXPECT_EQ(process.kernel.process.state_of_mappings, 5);
    process.kernel.lock_sequence = 6;
    process.Walk(leaf);
    process.Walk(leaf);
    EXPECT_EQ(process.kernel.process.mappings, 2);
    EXPECT_EQ(process.kernel.process.state_of_mappings, 6);
    process.kernel.lock_sequence = 2;  // code was unmapped, or the number began again
    process.Walk(leaf);
    EXPECT_EQ(process.kernel.process.mappings, 3);
    // Only the size of all code has more than 32 bits.
    process.kernel.lock_sequence = (uint64_t{1} << 32) + 2;
    process.Walk(leaf);
    EXPECT_EQ(process.kernel.process.mappings, no_fields.size() == 2 ? 4 : 3);
  }
}

// --- copies of stacks ------------------------------------------------------------------------------------------------

// A thread whose table never arrives, with the program's arguments far below the top of its memory.
class HostStackCopy : public ::testing::Test {
 protected:
  HostStackCopy() : leaf_(process_.Function(kPlain)) {
    process_.registers.rsp() = process_.stack_begin() + 0x68;
    process_.kernel.arguments = process_.stack_begin() + 3000;
  }
  Ring& ring() { return process_.kernel.ring("raw_stacks"); }
  // The chunks of a copy; 0: there was no room.
  uint64_t Chunks(uint32_t tid) {
    process_.kernel.tid = tid;
    const uint64_t before = ring().used();
    process_.Sample(leaf_);
    const uint64_t bytes = ring().used() - before;
    return bytes == 0 ? 0 : (bytes - sizeof(heaptap_raw_stack)) / HEAPTAP_CHUNK_BYTES;
  }

  Simulation process_{70};
  uint64_t leaf_;
};

TEST_F(HostStackCopy, TheMappingsAreTriedAgain) {
  process_.kernel.before_lookup = [&](std::string_view map) {
    if (map == "thread_stacks") process_.kernel.busy = kMappingTries - 1;
  };
  EXPECT_EQ(Chunks(1), 4);
}

TEST_F(HostStackCopy, TheLatestCopyTellsTheTop) {
  EXPECT_EQ(Chunks(1), 4);
  process_.kernel.busy = INT_MAX;
  EXPECT_EQ(Chunks(1), 4);
  EXPECT_GT(Chunks(2), 200) << "of another thread, only the memory tells";
}

}  // namespace
}  // namespace heaptap::harness
