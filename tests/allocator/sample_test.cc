// SPDX-License-Identifier: Apache-2.0
//
// libheaptap-sample.a without its control block and its probes, which are this file: which allocations are samples,
// what is said about them, and which of them are remembered. Seeds are fixed.
#include "heaptap/sample.h"

#include <gtest/gtest.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/sample/control.h"
#include "allocator/sample/probes.h"
#include "allocator/sample/remembered.h"
#include "allocator/sample/threads.h"
#include "allocator/sample/wrapped.h"
#include "heaptap/contract.h"
#include "support.h"

namespace {

struct Said {
  const void* block;
  size_t size;
  uint64_t weight;
  uint64_t heap;
  std::string name;
};

uint32_t interval = heaptap::sample::kOff;
bool has_started = true;
std::vector<Said> allocs;
std::vector<std::pair<const void*, uint64_t>> frees;

}  // namespace

namespace heaptap::sample {

bool HasStarted() { return has_started; }
uint32_t CurrentLgInterval() { return interval; }
uint64_t Seed() { return 7; }

}  // namespace heaptap::sample

extern "C" {

void* heaptap_sample_probe_alloc(const void* block, size_t size, uint64_t weight, uint64_t heap, const char* name) {
  allocs.push_back({block, size, weight, heap, name == nullptr ? "" : name});
  return const_cast<void*>(block);
}

void heaptap_sample_probe_free(const void* block, uint64_t heap) { frees.emplace_back(block, heap); }

}  // extern "C"

namespace heaptap::sample {
namespace {

using heaptap::testing::IsBinomial;
using heaptap::testing::SampleProbability;

constexpr uint64_t kHeap = uint64_t{1} << 63;
constexpr uint64_t kOtherHeap = kHeap | uint64_t{3} << 48;
// Eight in each of the 4096 lines of the first level.
constexpr size_t kSlotsOfFirst = 32768;

const void* BlockAt(uint64_t address) { return reinterpret_cast<const void*>(address); }

uint64_t Counted() {
  uint64_t sum = 0;
  for (const uint32_t count : heaptap_sample_counts) sum += count;
  return sum;
}

class SampleTest : public ::testing::Test {
 protected:
  SampleTest() {
    interval = kOff;
    has_started = true;
    allocs.clear();
    frees.clear();
  }
  ~SampleTest() override { EXPECT_EQ(Counted(), 0u) << "the test has left samples behind"; }

  // Runs in a thread of its own, whose countdown has not begun.
  template <typename Body>
  static void InNewThread(Body body) {
    std::thread(body).join();
  }
  static bool Charge(uint64_t bytes) {
    return __builtin_sub_overflow(heaptap_sample_left, bytes, &heaptap_sample_left);
  }
  // Whether an allocation of so many bytes ends the countdown.
  static bool Ends(uint64_t bytes) { return Charge(bytes) && EndCountdown(bytes) != kOff; }
};

TEST_F(SampleTest, IsRememberedOnceInItsHeap) {
  EXPECT_FALSE(Forget(BlockAt(0x1000), kHeap));
  ASSERT_TRUE(Remember(BlockAt(0x1000), kHeap));
  ASSERT_TRUE(Remember(BlockAt(0x1000), kOtherHeap)) << "heaps may lie within each other";
  EXPECT_EQ(Counted(), 2u);
  EXPECT_TRUE(Forget(BlockAt(0x1000), kHeap));
  EXPECT_FALSE(Forget(BlockAt(0x1000), kHeap));
  EXPECT_TRUE(Forget(BlockAt(0x1000), kOtherHeap));
}

TEST_F(SampleTest, AsManyAreRememberedAsThereAre) {
  constexpr size_t kMany = 3 * kSlotsOfFirst;
  for (size_t i = 1; i <= kMany; i++) ASSERT_TRUE(Remember(BlockAt(i * 16), kHeap));
  EXPECT_EQ(Counted(), kMany);
  for (size_t i = 1; i <= kMany; i++) ASSERT_TRUE(Forget(BlockAt(i * 16), kHeap)) << i;
}

TEST_F(SampleTest, ARangeIsForgottenFromItsFirstByteToItsLast) {
  constexpr size_t kMany = 2 * kSlotsOfFirst;
  constexpr size_t kFirst = 100, kEnd = kMany - 100;
  for (size_t i = 1; i <= kMany; i++) ASSERT_TRUE(Remember(BlockAt(i * 16), kHeap));
  ASSERT_TRUE(Remember(BlockAt(kFirst * 16), kOtherHeap));
  ForgetRange(BlockAt(kFirst * 16), (kEnd - kFirst) * 16, kHeap, heaptap_sample_probe_free);
  std::ranges::sort(frees);
  ASSERT_EQ(frees.size(), kEnd - kFirst);
  for (size_t i = kFirst; i < kEnd; i++) ASSERT_EQ(frees[i - kFirst], std::pair(BlockAt(i * 16), kHeap));
  EXPECT_EQ(Counted(), kMany - (kEnd - kFirst) + 1);
  EXPECT_TRUE(Forget(BlockAt(kFirst * 16), kOtherHeap));
  for (size_t i = 1; i <= kMany; i++) {
    ASSERT_EQ(Forget(BlockAt(i * 16), kHeap), i < kFirst || i >= kEnd) << i;
  }
}

TEST(SampleDeathTest, TheFirstSampleOfAProcessIsForgottenWithItsRange) {
  heaptap::testing::ExpectInNewProcess([]() -> std::string {
    Remember(BlockAt(0x1000), kHeap);
    ForgetRange(BlockAt(0x1000), 1, kHeap, heaptap_sample_probe_free);
    return frees.size() == 1 ? "" : "it is still remembered";
  });
}

TEST_F(SampleTest, ExactlyAllAtIntervalZero) {
  interval = 0;
  InNewThread([] {
    for (int i = 0; i < 1000; i++) EXPECT_TRUE(Ends(1 + i));
  });
}

TEST_F(SampleTest, NoneWhileSamplingIsOff) {
  InNewThread([] {
    for (int i = 0; i < 1000; i++) EXPECT_FALSE(Ends(kStride / 10));
    EXPECT_LE(heaptap_sample_left, kStride);
    EXPECT_GT(heaptap_sample_left, 0u) << "a stride without a question";
  });
}

TEST_F(SampleTest, BeforeTheStartEachAllocationAsks) {
  has_started = false;
  InNewThread([] {
    EXPECT_FALSE(Ends(1));
    EXPECT_TRUE(Charge(1));
  });
}

// The law of sample.h, and the number of bytes until a thread asks again.
TEST_F(SampleTest, AreTakenByTheLaw) {
  constexpr uint64_t kTrials = 200000;
  for (const uint32_t lg : {8u, 12u, 17u}) {
    for (const uint64_t size : {16u, 700u, 40000u}) {
      interval = lg;
      InNewThread([=] {
        uint64_t samples = 0;
        for (uint64_t i = 0; i < kTrials; i++) {
          samples += Ends(size);
          ASSERT_LE(heaptap_sample_left, kStride);
        }
        EXPECT_TRUE(IsBinomial(samples, kTrials, SampleProbability(size, lg)))
            << samples << " of " << size << " bytes at 2^" << lg;
      });
    }
  }
}

TEST_F(SampleTest, TheLawHoldsForTheFirstAllocationsOfAnInterval) {
  constexpr uint64_t kTrials = 100000, kSize = 700;
  constexpr uint32_t kLg = 10;
  InNewThread([] {
    uint64_t first = 0, second = 0;
    for (uint64_t i = 0; i < kTrials; i++) {
      interval = kOff;
      while (!Charge(kStride)) continue;
      EndCountdown(kStride);
      interval = kLg;
      // The rest of the stride, which does not count.
      heaptap_sample_left = 0;
      first += Ends(kSize);
      second += Ends(kSize);
    }
    const double p = SampleProbability(kSize, kLg);
    EXPECT_TRUE(IsBinomial(first, kTrials, p)) << first;
    EXPECT_TRUE(IsBinomial(second, kTrials, p)) << second;
  });
}

TEST_F(SampleTest, AChangeOfTheIntervalIsNoticedWithinAStride) {
  interval = 40;
  InNewThread([] {
    constexpr uint64_t kSize = 100;
    for (int i = 0; i < 10000; i++) Ends(kSize);
    interval = 0;
    uint64_t bytes = kSize;
    while (!Ends(kSize)) bytes += kSize;
    EXPECT_LE(bytes, kStride + kSize);
  });
}

TEST_F(SampleTest, ThreadsDrawTheirOwnNumbers) {
  std::set<double> drawn;
  for (int i = 0; i < 4; i++) InNewThread([&] { drawn.insert(DrawUnit()); });
  EXPECT_EQ(drawn.size(), 4u);
}

// The first number that a child draws after `forks` forks of its own, each the parent of the next.
double UnitOfADescendant(int forks) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const double unit = forks == 0 ? DrawUnit() : UnitOfADescendant(forks - 1);
    _exit(write(ends[1], &unit, sizeof(unit)) == sizeof(unit) ? 0 : 1);
  }
  double unit = 0;
  EXPECT_EQ(read(ends[0], &unit, sizeof(unit)), static_cast<ssize_t>(sizeof(unit)));
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  return unit;
}

// In a server with workers, the sum over the workers would have the variance of one of them.
TEST_F(SampleTest, ParentsSiblingsAndCousinsDrawTheirOwnNumbers) {
  DrawUnit();
  std::set<double> drawn;
  for (int i = 0; i < 4; i++) drawn.insert(UnitOfADescendant(0));
  for (int i = 0; i < 3; i++) drawn.insert(UnitOfADescendant(1));
  drawn.insert(UnitOfADescendant(2));
  drawn.insert(DrawUnit());
  EXPECT_EQ(drawn.size(), 9u);
}

TEST_F(SampleTest, IsSaidWithItsHeapAndItsFree) {
  interval = 0;
  InNewThread([] {
    const void* block = BlockAt(0x2000);
    EXPECT_FALSE(heaptap_heap_sample_alloc("pool", nullptr, 100)) << "no block";
    EXPECT_TRUE(heaptap_heap_sample_alloc("pool", block, 100));
    ASSERT_EQ(allocs.size(), 1u);
    EXPECT_EQ(allocs[0].block, block);
    EXPECT_EQ(allocs[0].size, 100u);
    EXPECT_EQ(allocs[0].weight, 100u);
    EXPECT_EQ(allocs[0].name, "pool");
    heaptap_heap_sample_free("other", block);
    EXPECT_TRUE(frees.empty()) << "of another heap";
    for (int i = 0; i < 2; i++) heaptap_heap_sample_free("pool", block);
    ASSERT_EQ(frees.size(), 1u);
    EXPECT_EQ(frees[0], std::pair(block, allocs[0].heap));
    EXPECT_TRUE(heaptap_heap_mark_alloc("pool", block, 10));
    EXPECT_EQ(Counted(), 0u) << "the allocator keeps a mark itself";
    heaptap_heap_mark_free("pool", block);
    EXPECT_EQ(frees.size(), 2u);
    EXPECT_TRUE(heaptap_heap_sample_alloc("pool", block, 10));
    EXPECT_TRUE(heaptap_heap_sample_alloc("other", block, 10));
    heaptap_heap_sample_free_range("pool", block, 1);
    EXPECT_EQ(frees.size(), 3u);
    heaptap_heap_sample_free_range("other", block, 1);
    EXPECT_EQ(frees.size(), 4u);
  });
}

TEST_F(SampleTest, EachNameHasANumber) {
  interval = 0;
  std::set<uint64_t> heaps;
  const std::string longest(HEAPTAP_HEAP_NAME_BYTES - 1, 'x');
  const std::vector<std::string> names = {"a", "b", "ab", "ba", "pool", longest, longest.substr(1)};
  InNewThread([&] {
    for (const std::string& name : names) heaptap_heap_mark_alloc(name.c_str(), BlockAt(16), 1);
    heaptap_heap_mark_alloc(nullptr, BlockAt(16), 1);
    heaptap_heap_mark_alloc("", BlockAt(16), 1);
    heaptap_heap_mark_alloc((longest + "y").c_str(), BlockAt(16), 1);
  });
  ASSERT_EQ(allocs.size(), names.size() + 3);
  for (size_t i = 0; i < names.size(); i++) {
    heaps.insert(HEAPTAP_HEAP_TAG(allocs[i].heap));
    EXPECT_NE(HEAPTAP_HEAP_NAME_ID(allocs[i].heap), 0u);
  }
  EXPECT_EQ(heaps.size(), names.size()) << "tags tell them apart";
  EXPECT_EQ(allocs[names.size()].heap, kHeap);
  EXPECT_EQ(allocs[names.size() + 1].heap, kHeap);
  EXPECT_EQ(allocs[names.size() + 2].heap, allocs[5].heap) << "the contract's bytes of a name count";
}

TEST_F(SampleTest, WeighsWhatItStandsFor) {
  constexpr uint32_t kLg = 10;
  constexpr size_t kSize = 300;
  interval = kLg;
  InNewThread([] {
    while (allocs.size() < 10) {
      heaptap_heap_mark_alloc(nullptr, BlockAt(16), kSize);
      if (allocs.size() % 2 == 0 && heaptap_sample_alloc(BlockAt(32), kSize)) heaptap_sample_free(BlockAt(32));
    }
  });
  for (const Said& one : allocs) {
    EXPECT_EQ(one.weight, static_cast<uint64_t>(round(kSize / SampleProbability(kSize, kLg))));
  }
}

// A wrapped allocation is charged with more than its usable size, and is a sample by that size.
TEST_F(SampleTest, WrappedBlocksFollowTheLawOfTheirUsableSize) {
  constexpr uint32_t kLg = 10;
  constexpr uint64_t kTrials = 100000;
  static size_t usable;
  const auto take = [](uint64_t charge, uint64_t trials) {
    for (uint64_t i = 0; i < trials; i++) {
      if (Charge(charge)) {
        heaptap_sample_wrapped_alloc(
            const_cast<void*>(BlockAt(48)), charge, [](void*) { return usable; }, 1);
        if (!allocs.empty()) heaptap_sample_wrapped_free(BlockAt(48));
      }
    }
  };
  interval = kLg;
  usable = 400;
  InNewThread([&] { take(824, kTrials); });
  EXPECT_TRUE(IsBinomial(allocs.size(), kTrials, SampleProbability(usable, kLg))) << allocs.size();
  EXPECT_EQ(allocs.size(), frees.size());
  EXPECT_EQ(allocs[0].size, usable);
  EXPECT_EQ(allocs[0].weight, static_cast<uint64_t>(round(400 / SampleProbability(400, kLg))));
  // A charge that is below the size: every candidate, and a larger weight.
  allocs.clear();
  usable = 2000;
  InNewThread([&] { take(824, kTrials); });
  EXPECT_TRUE(IsBinomial(allocs.size(), kTrials, SampleProbability(824, kLg))) << allocs.size();
  EXPECT_EQ(allocs[0].weight, static_cast<uint64_t>(round(2000 / SampleProbability(824, kLg))));
  // The host refuses the block.
  allocs.clear();
  usable = 0;
  InNewThread([&] { take(824, 1000); });
  interval = 0;
  InNewThread([&] { take(824, 10); });
  EXPECT_TRUE(allocs.empty());
  usable = 64;
  InNewThread([&] { take(824, 10); });
  ASSERT_EQ(allocs.size(), 10u);
  EXPECT_EQ(allocs[0].weight, 64u);
}

}  // namespace
}  // namespace heaptap::sample
