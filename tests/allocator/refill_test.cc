// SPDX-License-Identifier: Apache-2.0
//
// A batch that is longer than the countdown.
#include "allocator/core/refill.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/thread_totals.h"
#include "own_heap.h"
#include "recorder.h"

namespace heaptap {
namespace {

constexpr size_t kSize = 96;  // one in 11 is a sample
constexpr uint32_t kLgInterval = 10;
constexpr unsigned kClass = ClassOf(kSize);

uint32_t CountReady() {
  uint32_t count = 0;
  for (const Block* block = current_heap->ready[kClass]; block != nullptr; block = block->next) count++;
  return count;
}

const BlockList& Rest() { return current_heap->classes[kClass].rest; }

// Blocks of the class, which are freed at the end.
class Blocks {
 public:
  ~Blocks() { FreeAll(); }
  void FreeAll() {
    for (void* block : blocks_) Free(block);
    blocks_.clear();
  }
  // Allocates another. Returns whether it is a sample.
  bool Take() {
    blocks_.push_back(Allocate(kSize));
    return SlabOf(blocks_.back(), kShortShift)->owner == kSampledOwner;
  }
  void TakeReady() {
    for (uint32_t left = CountReady(); left != 0; left--) EXPECT_FALSE(Take());
  }

 private:
  std::vector<void*> blocks_;
};

// Runs `test` on a thread whose heap has a batch with a rest.
void WithRest(void (*test)(Blocks* blocks)) {
  testing::SamplingOn on(kLgInterval);
  std::thread([&] {
    Blocks blocks;
    for (uint32_t i = 0; i < 4 * kSlabCapacity[kClass]; i++) blocks.Take();
    blocks.FreeAll();
    do blocks.Take();
    while (Rest().first == nullptr);
    testing::CheckOwnHeap();
    test(&blocks);
    testing::CheckOwnHeap();
  }).join();
}

TEST(Refill, TheRestOfABatchIsReadyBehindTheSample) {
  WithRest([](Blocks* blocks) {
    for (int i = 0; i < 20 && Rest().first != nullptr; i++) {
      const uint32_t rest = Rest().length;
      EXPECT_EQ(current_heap->countdown().Allowance(kClass), 0u);
      blocks->TakeReady();
      EXPECT_TRUE(blocks->Take());
      EXPECT_EQ(CountReady() + Rest().length, rest);
    }
  });
}

TEST(Refill, TheRestOfABatchIsNotAllocated) {
  WithRest([](Blocks* blocks) {
    const uint64_t before = ReadThreadAllocated();
    const uint32_t ready = CountReady();
    blocks->TakeReady();
    EXPECT_EQ(ReadThreadAllocated(), before + ready * kSize);
  });
}

TEST(Refill, TheRestOfABatchGoesBackWhenTheIntervalChanges) {
  WithRest([](Blocks*) {
    const uint64_t before = ReadThreadAllocated();
    const uint32_t batch = CountReady() + Rest().length;
    const SharedCount& taken_back = current_heap->classes[kClass].counts.taken_back;
    const uint64_t taken_back_before = taken_back.Read();
    const testing::SamplingOn other(kLgInterval + 10);
    Free(Allocate(size_t{64} << 10));  // looks at the interval
    EXPECT_EQ(Rest().first, nullptr);
    EXPECT_EQ(Rest().length, 0u);
    EXPECT_EQ(CountReady(), 0u);
    EXPECT_EQ(taken_back.Read(), taken_back_before + batch);
    EXPECT_EQ(ReadThreadAllocated(), before + (size_t{64} << 10));
  });
}

// As in the child of a fork, where ready blocks stay ready.
TEST(Refill, TheRestOfABatchGoesOnAfterARestart) {
  WithRest([](Blocks* blocks) {
    observer::RestartHeap(current_heap, 7);
    const uint32_t rest = Rest().length;
    blocks->TakeReady();
    const bool is_sample = blocks->Take();
    EXPECT_EQ(CountReady() + Rest().length + !is_sample, rest);
  });
}

// Without sampling, a new countdown is kNever, the highest value that it may have. Blocks that go back raise it.
TEST(Refill, ReadyBlocksGoBackAfterARestartWithoutSampling) {
  void* block = Allocate(kSize);
  ASSERT_LT(current_heap->countdown().Allowance(kClass), Countdown::kNever - 1) << "further ones are ready";
  observer::RestartHeap(current_heap, 7);
  current_heap->PutBackReady();
  EXPECT_LT(current_heap->countdown().Allowance(kClass), Countdown::kNever);
  Free(block);
}

}  // namespace
}  // namespace heaptap
