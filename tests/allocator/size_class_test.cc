// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/size_class.h"

#include <gtest/gtest.h>

#include "allocator/core/slab.h"

namespace heaptap {
namespace {

TEST(SizeClass, SmallClassesAreJemallocs) {
  const uint32_t expected[] = {8,     16,    32,    48,    64,    80,    96,    112,  128,  160,  192,
                               224,   256,   320,   384,   448,   512,   640,   768,  896,  1024, 1280,
                               1536,  1792,  2048,  2560,  3072,  3584,  4096,  5120, 6144, 7168, 8192,
                               10240, 12288, 14336, 16384, 20480, 24576, 28672, 32768};
  ASSERT_EQ(std::size(expected), kSmallClasses);
  for (unsigned c = 0; c < kSmallClasses; c++) EXPECT_EQ(kClassSize[c], expected[c]);
}

TEST(SizeClass, ClassOfIsTheSmallestThatFits) {
  for (size_t size = 0; size <= kSmallMaximum; size++) {
    unsigned c = ClassOf(size);
    ASSERT_GE(kClassSize[c], size);
    if (c > 0) {
      ASSERT_LT(kClassSize[c - 1], size);
    }
    ASSERT_EQ(RoundUpToClass(size), kClassSize[c]);
  }
}

TEST(SizeClass, LargeClassesAreFourForEachDoubling) {
  EXPECT_EQ(RoundUpToClass(32769), 40960u);
  EXPECT_EQ(RoundUpToClass(40961), 49152u);
  EXPECT_EQ(RoundUpToClass(57345), 65536u);
  EXPECT_EQ(RoundUpToClass(65537), 81920u);
  EXPECT_EQ(RoundUpToClass((size_t{16} << 20) + 1), size_t{20} << 20);
  EXPECT_EQ(RoundUpToClass(size_t{5} << 40), size_t{5} << 40);
  EXPECT_EQ(RoundUpToClass(PTRDIFF_MAX), size_t{1} << 63);
  EXPECT_EQ(RoundUpToClass(size_t{PTRDIFF_MAX} + 1), 0u);
  EXPECT_EQ(RoundUpToClass(SIZE_MAX), 0u);
}

TEST(SizeClass, AlignedClassesAreJemallocs) {
  EXPECT_EQ(RoundUpToAlignedClass(1, 8), 8u);
  EXPECT_EQ(RoundUpToAlignedClass(1, 16), 16u);
  EXPECT_EQ(RoundUpToAlignedClass(130, 64), 192u);
  EXPECT_EQ(RoundUpToAlignedClass(100, 64), 128u);
  EXPECT_EQ(RoundUpToAlignedClass(1, 4096), 4096u);
  EXPECT_EQ(RoundUpToAlignedClass(4097, 4096), 8192u);
  EXPECT_EQ(RoundUpToAlignedClass(12289, 4096), 16384u);
  EXPECT_EQ(RoundUpToAlignedClass(14336, 16), 14336u);
  EXPECT_EQ(RoundUpToAlignedClass(14337, 16), 16384u);
  EXPECT_EQ(RoundUpToAlignedClass(100, 8192), 16384u);
  EXPECT_EQ(RoundUpToAlignedClass(100, 1 << 20), 16384u);
  EXPECT_EQ(RoundUpToAlignedClass(16385, 8192), 20480u);
  EXPECT_EQ(RoundUpToAlignedClass(SIZE_MAX, 16), 0u);
}

// What lets aligned blocks lie in ordinary slabs.
TEST(SizeClass, AlignedClassesBelowAPageAreMultiplesOfTheAlignment) {
  for (size_t alignment = 8; alignment <= kPageSize; alignment *= 2) {
    for (size_t size = 1; size <= kSmallMaximum; size++) {
      ASSERT_EQ(RoundUpToAlignedClass(size, alignment) % alignment, 0u) << size << " " << alignment;
    }
  }
}

TEST(SizeClass, SlabsHoldEnoughBlocks) {
  for (unsigned c = 0; c < kSmallClasses; c++) EXPECT_GE(kSlabCapacity[c], 16u);
}

}  // namespace
}  // namespace heaptap
