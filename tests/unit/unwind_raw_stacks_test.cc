// SPDX-License-Identifier: Apache-2.0
//
// Tests which copies of a stack the eBPF programs send to the collector (bpf/raw_stack.bpf.h), in a simulated process.
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
