// SPDX-License-Identifier: Apache-2.0
//
// mallocx, rallocx and xallocx, below their flags (tests/allocator/extended.c has these, against jemalloc).
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/large.h"
#include "allocator/core/units.h"
#include "allocator/platform/random.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::Books;
using testing::ClearBooks;
using testing::IsAligned;
using testing::IsFilled;
using testing::kMiB;
using testing::ReadBooks;
using testing::SampleProbability;
using testing::SamplingOn;

TEST(AllocateExtended, ZeroToTheEndOfTheUsableSizeAtAnyAlignment) {
  for (uint32_t lg : {63u, 0u}) {
    SamplingOn on(lg);
    for (size_t size : {1, 8, 9, 100, 1000, 5000, 17000, 33000, 70000, 1 << 20}) {
      for (size_t alignment = 1; alignment <= 64 * kMiB; alignment *= 4) {
        for (int i = 0; i < 3; i++) {  // untouched, and used before
          void* pointer = AllocateExtended(size, {alignment, true});
          ASSERT_NE(pointer, nullptr);
          ASSERT_TRUE(IsAligned(pointer, alignment));
          size_t usable = UsableSize(pointer);
          ASSERT_EQ(usable, RoundUpToAlignedClass(size, alignment));
          ASSERT_TRUE(IsFilled(pointer, 0, usable, 0)) << size << " at " << alignment;
          memset(pointer, 0xff, usable);
          Free(pointer);
        }
      }
    }
    EXPECT_EQ(ReadBooks().live, 0u);
  }
}

// Every move and every resizing in place, between all kinds of blocks.
TEST(ReallocateExtended, KeepsContentsZeroesTheRestAndAligns) {
  for (uint32_t lg : {63u, 0u, 16u}) {
    SamplingOn on(lg);
    Random random;
    random.Seed(lg, 3);
    unsigned char* pointer = nullptr;
    size_t usable = 0;
    for (int i = 0; i < 300; i++) {
      size_t size = 1 + random.Next() % (size_t{1} << (random.Next() % 26));
      BlockTraits traits{size_t{1} << (random.Next() % 27), true};
      pointer = static_cast<unsigned char*>(Reallocate(pointer, size, traits));
      ASSERT_NE(pointer, nullptr);
      ASSERT_TRUE(IsAligned(pointer, traits.alignment));
      size_t new_usable = UsableSize(pointer);
      ASSERT_EQ(new_usable, RoundUpToAlignedClass(size, traits.alignment));
      size_t kept = std::min(usable, new_usable);
      ASSERT_TRUE(IsFilled(pointer, 0, kept, 0x33)) << usable << " to " << new_usable;
      ASSERT_TRUE(IsFilled(pointer, kept, new_usable, 0)) << usable << " to " << new_usable;
      memset(pointer, 0x33, new_usable);
      usable = new_usable;
    }
    Free(pointer);
    EXPECT_EQ(ReadBooks().live, 0u);
    EXPECT_EQ(ReadBooks().errors, 0u);
  }
}

// 16 KiB blocks lie in slabs at multiples of 16 KiB: every other one is at a multiple of 32 KiB, by chance.
TEST(ReallocateExtended, AChanceAlignmentDoesNotHoldForASample) {
  constexpr size_t kSize = 16 * 1024;
  std::vector<void*> blocks(16);
  for (void*& block : blocks) block = Allocate(kSize);
  SamplingOn on(0);
  for (void* block : blocks) {
    void* pointer = Reallocate(block, kSize, {2 * kSize, false});
    EXPECT_TRUE(IsAligned(pointer, 2 * kSize));
    Free(pointer);
  }
  EXPECT_EQ(ReadBooks().live, 0u);
}

TEST(ReallocateExtended, TooLargeLeavesTheBlock) {
  char* pointer = static_cast<char*>(Allocate(100));
  memset(pointer, 7, 112);
  errno = 0;
  EXPECT_EQ(Reallocate(pointer, kLargestClass, {64, true}), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_TRUE(IsFilled(pointer, 0, 112, 7));
  Free(pointer);
}

// Nothing is allocated, so the books do not move, and a sample stays a sample.
TEST(ResizeInPlace, BlocksOfSlabsKeepTheirSize) {
  for (uint32_t lg : {63u, 0u}) {
    SamplingOn on(lg);
    for (uint32_t size : kClassSize) {
      Free(Allocate(size));  // past what was ready
      void* pointer = Allocate(size);
      uint64_t live = ReadBooks().live;
      ClearBooks();
      for (size_t wanted :
           {size_t{0}, size_t{1}, size_t{size}, size_t{size} + 1, size_t{100000}, 20 * kMiB, SIZE_MAX}) {
        for (size_t extra : {size_t{0}, size_t{100}, SIZE_MAX - wanted}) {
          ASSERT_EQ(ResizeInPlace(pointer, wanted, extra, {1, true}), size);
        }
      }
      EXPECT_EQ(ReadBooks().allocs + ReadBooks().frees, 0u);
      EXPECT_EQ(ReadBooks().live, live);
      Free(pointer);
    }
    EXPECT_EQ(ReadBooks().live, 0u);
  }
}

struct Step {
  size_t size;
  size_t extra;
  size_t result;
};

// Takes a block through the steps; at rate 0 each change is one free and one allocation.
void ExpectSteps(size_t first, const std::vector<Step>& steps) {
  SamplingOn on(0);
  unsigned char* pointer = static_cast<unsigned char*>(Allocate(first));
  size_t usable = UsableSize(pointer);
  memset(pointer, 0x33, usable);
  for (const Step& step : steps) {
    ClearBooks();
    ASSERT_EQ(ResizeInPlace(pointer, step.size, step.extra, {1, true}), step.result) << usable << " to " << step.size;
    ASSERT_EQ(UsableSize(pointer), step.result);
    Books books = ReadBooks();
    uint64_t changes = step.result != usable ? 1 : 0;
    EXPECT_EQ(books.allocs, changes);
    EXPECT_EQ(books.frees, changes);
    EXPECT_EQ(books.bytes, changes * step.result);
    EXPECT_EQ(books.live, 1u);
    ASSERT_TRUE(IsFilled(pointer, 0, std::min(usable, step.result), 0x33));
    if (step.result > usable) {
      ASSERT_TRUE(IsFilled(pointer, usable, step.result, 0)) << usable << " to " << step.result;
    }
    usable = step.result;
    memset(pointer, 0x33, usable);
  }
  Free(pointer);
  EXPECT_EQ(ReadBooks().live, 0u);
  EXPECT_EQ(ReadBooks().errors, 0u);
}

// Shrinking leaves dirty units behind a run, into which it grows again.
TEST(ResizeInPlace, Runs) {
  ExpectSteps(12 * kMiB, {
                             {8 * kMiB, 0, 8 * kMiB},
                             {12 * kMiB, 0, 12 * kMiB},
                             {40000, 0, 40960},
                             {40000, 900, 40960},
                             {40000, 2 * kMiB, 2560 * 1024},
                             {100000, 0, 114688},
                             {16384, 0, 16384},
                             {14336, 0, 16384},
                             {1, 0, 16384},
                             {1, 16383, 16384},
                             {65536, 0, 65536},
                             {SIZE_MAX, 0, 65536},
                             {kLargestClass, 0, 65536},
                             {kRunMaximum + 1, 0, 65536},
                         });
}

TEST(ResizeInPlace, HugeBlocks) {
  ExpectSteps(64 * kMiB, {
                             {40 * kMiB, 0, 40 * kMiB},
                             {40 * kMiB, 8 * kMiB, 48 * kMiB},
                             {20000, 0, 20480},
                             {30 * kMiB, 2 * kMiB, 32 * kMiB},
                             {kLargestClass, 0, 32 * kMiB},
                         });
}

// The most that is asked for does not fit; the least does.
TEST(ResizeInPlace, TheLeastIfTheMostDoesNotFit) {
  ExpectSteps(kMiB, {
                        {65536, 0, 65536},
                        {256 * 1024, SIZE_MAX - 256 * 1024, 256 * 1024},
                        {256 * 1024, SIZE_MAX - 256 * 1024, 256 * 1024},
                        {kMiB, kRunMaximum, kMiB},
                    });
}

TEST(ResizeInPlace, WhatIsInTheWayStays) {
  std::vector<void*> runs(40);
  for (void*& run : runs) run = Allocate(100000);
  size_t stuck = 0;
  for (void* run : runs) {
    size_t result = ResizeInPlace(run, 200000, 0, {});
    stuck += result == 114688;
    EXPECT_TRUE(result == 114688 || result == 229376) << result;
    EXPECT_EQ(UsableSize(run), result);
  }
  EXPECT_GT(stuck, 30u);
  for (void* run : runs) Free(run);
}

TEST(ResizeInPlace, MisalignedAndForeignPointers) {
  void* pointer = Allocate(kMiB);
  size_t alignment = 2 * (reinterpret_cast<uintptr_t>(pointer) & -reinterpret_cast<uintptr_t>(pointer));
  EXPECT_EQ(ResizeInPlace(pointer, 65536, 0, {alignment, false}), kMiB);
  EXPECT_EQ(ResizeInPlace(pointer, 65536, 0, {alignment / 2, false}), 65536u);
  Free(pointer);
  static char foreign[64];
  EXPECT_EQ(ResizeInPlace(foreign, 10, 0, {}), 0u);
  EXPECT_EQ(ResizeInPlace(nullptr, 10, 0, {}), 0u);
}

TEST(ResizeInPlace, KeepsErrno) {
  void* pointer = Allocate(64 * kMiB);
  errno = 77;
  ResizeInPlace(pointer, kLargestClass, 0, {});
  ResizeInPlace(pointer, 40 * kMiB, 0, {});
  EXPECT_EQ(errno, 77);
  Free(pointer);
}

// Every change is a new trial, with the probability of its new size; calls that change nothing are none.
TEST(ResizeInPlace, FollowsTheSamplingLaw) {
  constexpr size_t kSmaller = 64 * 1024;
  constexpr size_t kLarger = 128 * 1024;
  constexpr int kRounds = 20000;
  constexpr uint32_t kLg = 17;
  SamplingOn on(kLg);
  void* pointer = Allocate(kLarger);
  ClearBooks();
  for (int i = 0; i < kRounds; i++) {
    ASSERT_EQ(ResizeInPlace(pointer, kSmaller, 0, {}), kSmaller);
    ASSERT_EQ(ResizeInPlace(pointer, kSmaller, 0, {}), kSmaller);
    ASSERT_EQ(ResizeInPlace(pointer, kLarger, 0, {}), kLarger);
    ASSERT_EQ(ResizeInPlace(pointer, kLarger, 0, {}), kLarger);
  }
  double mean = 0;
  double variance = 0;
  for (size_t size : {kSmaller, kLarger}) {
    double p = SampleProbability(size, kLg);
    mean += kRounds * p;
    variance += kRounds * p * (1 - p);
  }
  double samples = static_cast<double>(ReadBooks().allocs);
  EXPECT_LE(std::fabs(samples - mean), 5 * std::sqrt(variance)) << samples << ", expected " << mean;
  Free(pointer);
  EXPECT_EQ(ReadBooks().live, 0u);
  EXPECT_EQ(ReadBooks().errors, 0u);
}

}  // namespace
}  // namespace heaptap
