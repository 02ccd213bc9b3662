// SPDX-License-Identifier: Apache-2.0
//
// The law: every allocation is a sample with probability 1 - exp(-size / R), independently. Seeds are fixed: by the
// test where it owns the sampler, by the rule that runs the tests (prof_seed) where heaps of the process are used.
#include "allocator/sampling/sampler.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "allocator/core/allocate.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::Books;
using testing::ClearBooks;
using testing::ReadBooks;
using testing::SampleProbability;
using testing::SamplingOn;

void ExpectBinomial(uint64_t samples, uint64_t trials, double p) {
  EXPECT_TRUE(testing::IsBinomial(samples, trials, p))
      << samples << " samples of " << trials << ", expected " << static_cast<double>(trials) * p;
}

Sampler MakeSampler(LgInterval lg_interval, uint64_t stream) {
  Sampler sampler;
  sampler.Start(42, stream);
  sampler.FollowLgInterval(lg_interval);
  return sampler;
}

// As Heap::Take does it: batches of at most `batch` blocks, cut at the sample. Returns the number of the sample.
uint64_t NextSample(Sampler* sampler, unsigned size_class, uint64_t batch) {
  uint64_t number = 1;
  while (sampler->Allowance(size_class) != 0) {
    uint64_t count = std::min(batch, sampler->Allowance(size_class));
    sampler->HandOut(size_class, count);
    number += count;
  }
  sampler->Draw(size_class);
  return number;
}

class EachClass : public ::testing::TestWithParam<unsigned> {};

// Chi-square over 16 equally likely stretches of the geometric law.
TEST_P(EachClass, DistanceIsGeometric) {
  unsigned c = GetParam();
  for (LgInterval lg_interval : {12u, 19u}) {
    Sampler sampler = MakeSampler(lg_interval, c);
    double p = SampleProbability(kClassSize[c], lg_interval);
    constexpr int kCells = 16;
    constexpr int kDraws = 16000;
    std::vector<double> observed(kCells + 1);
    std::vector<double> expected(kCells + 1);
    std::vector<uint64_t> bounds;  // the last distance of each cell
    for (int i = 1; i < kCells; i++) {
      uint64_t bound = static_cast<uint64_t>(std::ceil(std::log1p(-i / double{kCells}) / std::log1p(-p)));
      if (bounds.empty() || bound > bounds.back()) bounds.push_back(bound);
    }
    double below = 0;
    for (size_t i = 0; i < bounds.size(); i++) {
      double cumulative = -std::expm1(static_cast<double>(bounds[i]) * std::log1p(-p));
      expected[i] = (cumulative - below) * kDraws;
      below = cumulative;
    }
    expected[bounds.size()] = (1 - below) * kDraws;
    for (int i = 0; i < kDraws; i++) {
      uint64_t distance = NextSample(&sampler, c, 64);
      observed[std::lower_bound(bounds.begin(), bounds.end(), distance) - bounds.begin()]++;
    }
    double chi_square = 0;
    for (size_t i = 0; i <= bounds.size(); i++) {
      if (expected[i] >= 5) chi_square += (observed[i] - expected[i]) * (observed[i] - expected[i]) / expected[i];
    }
    // 15 degrees of freedom: exceeded with probability 1e-5.
    EXPECT_LE(chi_square, 50) << "lg_interval " << lg_interval;
  }
}

INSTANTIATE_TEST_SUITE_P(Sampler, EachClass, ::testing::Range(0u, kSmallClasses));

TEST(Sampler, BatchesDoNotChangeTheLaw) {
  unsigned c = ClassOf(64);
  double p = SampleProbability(64, 12);
  for (uint64_t batch : {1, 2, 3, 63, 1024, 1 << 20}) {
    Sampler sampler = MakeSampler(12, batch);
    uint64_t trials = 0;
    constexpr uint64_t kSamples = 20000;
    for (uint64_t i = 0; i < kSamples; i++) trials += NextSample(&sampler, c, batch);
    ExpectBinomial(kSamples, trials, p);
  }
}

TEST(Sampler, TakenBackBlocksDoNotChangeTheLaw) {
  unsigned c = ClassOf(256);
  Sampler sampler = MakeSampler(14, 1);
  Random random;
  random.Seed(3, 3);
  uint64_t trials = 0;
  uint64_t samples = 0;
  while (samples < 20000) {
    uint64_t allowance = sampler.Allowance(c);
    if (allowance == 0) {
      sampler.Draw(c);
      trials++;
      samples++;
      continue;
    }
    uint64_t count = std::min<uint64_t>(32, allowance);
    uint64_t unused = random.Next() % (count + 1);
    sampler.HandOut(c, count);
    sampler.TakeBack(c, unused);
    trials += count - unused;
  }
  ExpectBinomial(samples, trials, SampleProbability(256, 14));
}

TEST(Sampler, LargeBlocksAndBlocksInPlace) {
  Sampler sampler = MakeSampler(19, 5);
  for (size_t size : {size_t{40960}, size_t{524288}, size_t{4} << 20}) {
    uint64_t large = 0;
    uint64_t in_place = 0;
    constexpr uint64_t kTrials = 50000;
    for (uint64_t i = 0; i < kTrials; i++) {
      large += sampler.TestLarge(size);
      in_place += sampler.TestInPlace(size);
    }
    ExpectBinomial(large, kTrials, SampleProbability(size, 19));
    ExpectBinomial(in_place, kTrials, SampleProbability(size, 19));
  }
}

TEST(Sampler, RateZeroTakesEverything) {
  Sampler sampler = MakeSampler(0, 1);
  for (unsigned c = 0; c < kSmallClasses; c++) {
    EXPECT_EQ(sampler.Allowance(c), 0u);
    sampler.Draw(c);
    EXPECT_EQ(sampler.Allowance(c), 0u);
    EXPECT_EQ(sampler.Weight(c), kClassSize[c]);
  }
  EXPECT_TRUE(sampler.TestLarge(1));
  EXPECT_TRUE(sampler.TestInPlace(1));
  EXPECT_EQ(SampleWeight(12345, 0), 12345u);
}

TEST(Sampler, OffTakesNothing) {
  Sampler sampler = MakeSampler(kSamplingOff, 1);
  for (unsigned c = 0; c < kSmallClasses; c++) EXPECT_GT(sampler.Allowance(c), uint64_t{1} << 60);
  EXPECT_FALSE(sampler.TestLarge(SIZE_MAX));
  EXPECT_FALSE(sampler.TestInPlace(SIZE_MAX));
}

TEST(Sampler, WeightIsTheExpectedNumberOfBytes) {
  for (LgInterval lg_interval : {1u, 10u, 19u, 30u, 62u, 63u}) {
    for (size_t size : {size_t{8}, size_t{64}, size_t{32768}, size_t{1} << 30}) {
      double expected = static_cast<double>(size) / SampleProbability(size, lg_interval);
      EXPECT_NEAR(static_cast<double>(SampleWeight(size, lg_interval)), expected, 0.5 + expected * 1e-12);
    }
  }
}

TEST(Sampler, StreamsDiffer) {
  unsigned c = ClassOf(64);
  std::vector<uint64_t> first;
  for (uint64_t stream = 0; stream < 100; stream++) first.push_back(MakeSampler(19, stream).Allowance(c));
  std::sort(first.begin(), first.end());
  EXPECT_GE(std::unique(first.begin(), first.end()) - first.begin(), 98);
}

std::vector<uint64_t> SamplesAfterRestart(uint64_t draws_before, uint64_t seed, uint64_t stream) {
  Sampler sampler = MakeSampler(12, 1);
  for (uint64_t i = 0; i < draws_before; i++) sampler.DrawBytes();
  sampler.Restart(seed, stream);
  // The first sample of each class is where the earlier countdown has it.
  const Sampler before = MakeSampler(12, 1);
  std::vector<uint64_t> numbers;
  for (unsigned c = 0; c < kSmallClasses; c++) {
    EXPECT_EQ(NextSample(&sampler, c, 64), before.Allowance(c) + 1);
    numbers.push_back(NextSample(&sampler, c, 64));
  }
  return numbers;
}

// So a child's samples are not its parent's, nor another child's, and they are the same in each run with a seed.
TEST(Sampler, WhatIsDrawnAfterARestartDependsOnSeedAndStreamAlone) {
  const std::vector<uint64_t> numbers = SamplesAfterRestart(0, 7, 1);
  EXPECT_EQ(SamplesAfterRestart(100, 7, 1), numbers);
  EXPECT_NE(SamplesAfterRestart(0, 8, 1), numbers);
  EXPECT_NE(SamplesAfterRestart(0, 7, 2), numbers);
}

// The whole allocator, one class at a time: alloc and free in an order that makes batches of all lengths.
TEST(SamplingLaw, OfTheAllocator) {
  for (size_t size : {8, 64, 400, 4096, 32768, 100000}) {
    SamplingOn on(16);
    size_t usable = RoundUpToClass(size);
    for (int i = 0; i < 10000; i++) Free(Allocate(size));  // past the blocks that were ready
    ClearBooks();
    std::vector<void*> live(300);
    Random random;
    random.Seed(size, 0);
    constexpr uint64_t kTrials = 300000;
    for (uint64_t i = 0; i < kTrials; i++) {
      void*& slot = live[random.Next() % live.size()];
      Free(slot);
      slot = Allocate(size);
    }
    Books books = ReadBooks();
    // Off by the blocks that are ready at either end.
    ExpectBinomial(books.allocs, kTrials, SampleProbability(usable, 16));
    EXPECT_EQ(books.bytes, books.allocs * usable);
    EXPECT_EQ(books.weight, books.allocs * SampleWeight(usable, 16));
    EXPECT_EQ(books.errors, 0u);
    for (void* pointer : live) Free(pointer);
    EXPECT_EQ(ReadBooks().live, 0u);
  }
}

TEST(SamplingLaw, OfReallocInPlace) {
  SamplingOn on(16);
  void* pointer = Allocate(1000);
  ClearBooks();
  constexpr uint64_t kTrials = 300000;
  for (uint64_t i = 0; i < kTrials; i++) pointer = Reallocate(pointer, 1000 + i % 20);
  Books books = ReadBooks();
  ExpectBinomial(books.allocs, kTrials, SampleProbability(1024, 16));
  EXPECT_EQ(books.errors, 0u);
  Free(pointer);
  EXPECT_EQ(ReadBooks().live, 0u);
}

TEST(SamplingLaw, ChangesOfTheRateAreSeen) {
  constexpr size_t kSize = 2000;
  constexpr uint64_t kTrials = 100000;
  for (uint32_t lg : {0u, 20u, 12u, 16u}) {
    SamplingOn on(lg);
    for (int i = 0; i < 1000; i++) Free(Allocate(kSize));
    ClearBooks();
    for (uint64_t i = 0; i < kTrials; i++) Free(Allocate(kSize));
    Books books = ReadBooks();
    if (lg == 0) {
      EXPECT_EQ(books.allocs, kTrials);
      EXPECT_EQ(books.weight, books.bytes);
    } else {
      ExpectBinomial(books.allocs, kTrials, SampleProbability(2048, lg));
    }
    EXPECT_EQ(books.frees, books.allocs);
  }
  for (int i = 0; i < 1000; i++) Free(Allocate(kSize));
  ClearBooks();
  for (uint64_t i = 0; i < kTrials; i++) Free(Allocate(kSize));
  EXPECT_EQ(ReadBooks().allocs, 0u);
}

size_t CountReady(unsigned size_class) {
  size_t count = (current_heap->fresh_end[size_class] - current_heap->fresh[size_class]) / kClassSize[size_class];
  for (const Block* block = current_heap->ready[size_class]; block != nullptr; block = block->next) count++;
  return count;
}

// Each way in which the thread learns of a change of the interval or gives its ready blocks back.
TEST(SamplingLaw, IsExactForEveryClassOnceTheRateIsSeen) {
  constexpr size_t kSize = 2000;
  constexpr uint64_t kTrials = 200;
  for (bool flush : {false, true}) {
    do {
      Free(Allocate(kSize));
    } while (CountReady(ClassOf(kSize)) == 0);
    SamplingOn on(0);
    void* another = Allocate(100000);
    if (flush) {
      HeapScope scope;
      scope->Flush();
    }
    ClearBooks();
    for (uint64_t i = 0; i < kTrials; i++) Free(Allocate(kSize));
    EXPECT_EQ(ReadBooks().allocs, kTrials) << (flush ? "after a flush" : "");
    Free(another);
  }
}

TEST(SamplingLaw, HoldsForTheFirstAllocationsOfAChild) {
  constexpr size_t kSize = 512;
  constexpr uint32_t kRate = 12;
  constexpr uint64_t kForks = 300;
  constexpr uint64_t kAllocations = 16;
  SamplingOn on(kRate);
  uint64_t samples = 0;
  size_t ready = 0;
  for (uint64_t i = 0; i < kForks; i++) {
    // Each child begins in a countdown of its own.
    for (ClearBooks(); ReadBooks().allocs == 0;) Free(Allocate(kSize));
    Free(Allocate(kSize));
    ready += CountReady(ClassOf(kSize));
    ClearBooks();
    const pid_t child = fork();
    if (child == 0) {
      for (uint64_t k = 0; k < kAllocations; k++) Allocate(kSize);
      _exit(static_cast<int>(ReadBooks().allocs));
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    samples += WEXITSTATUS(status);
  }
  ExpectBinomial(samples, kForks * kAllocations, SampleProbability(kSize, kRate));
  EXPECT_GT(ready, kForks) << "or the blocks that are ready have no say";
}

// Which of the next allocations of the process are samples.
std::string NextSamples() {
  constexpr int kAllocations = 1000;
  std::string samples;
  std::vector<void*> blocks;
  for (int i = 0; i < kAllocations; i++) {
    void* block = blocks.emplace_back(Allocate(512));
    samples += SlabOf(block, ChunkKind(block))->owner == kSampledOwner ? 's' : '-';
  }
  for (void* block : blocks) Free(block);
  return samples;
}

// `forks`: further ones, each child the parent of the next.
std::string NextSamplesOfADescendant(int forks) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string samples = forks == 0 ? NextSamples() : NextSamplesOfADescendant(forks - 1);
    _exit(write(ends[1], samples.data(), samples.size()) == static_cast<ssize_t>(samples.size()) ? 0 : 1);
  }
  close(ends[1]);
  char text[4096];
  const ssize_t length = read(ends[0], text, sizeof(text));
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return std::string(text, length > 0 ? static_cast<size_t>(length) : 0);
}

// The parent does not change between the forks.
TEST(SamplingLaw, ProcessesRepeatNoSamplesOfTheirParentsSiblingsAndCousins) {
  SamplingOn on(12);
  for (int i = 0; i < 1000; i++) Free(Allocate(512));
  std::vector<std::string> all;
  for (const int forks : {0, 0, 0, 1, 1, 2}) all.push_back(NextSamplesOfADescendant(forks));
  all.push_back(NextSamples());
  std::set<std::string> behind_the_first;
  for (const std::string& samples : all) {
    EXPECT_GT(std::count(samples.begin(), samples.end(), 's'), 50);
    EXPECT_EQ(samples.find('s'), all[0].find('s')) << "the countdown that had begun goes on";
    behind_the_first.insert(samples.substr(samples.find('s') + 1));
  }
  EXPECT_EQ(behind_the_first.size(), all.size());
}

}  // namespace
}  // namespace heaptap
