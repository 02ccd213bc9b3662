// SPDX-License-Identifier: Apache-2.0
//
// Mappings of which a program has changed a part: they are noticed, they do not move, and what was changed ends with
// the block.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "allocator/core/allocate.h"
#include "allocator/core/huge_cache.h"
#include "allocator/core/large.h"
#include "allocator/core/options.h"
#include "allocator/platform/system.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::IsFilled;
using testing::kMiB;

constexpr size_t kBytes = 16 * kPageSize;

// A mapping, behind which a page stays free, so that the kernel joins it with no other.
class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes), memory_(static_cast<char*>(MapAligned(bytes + kPageSize, kPageSize))) {
    Unmap(memory_ + bytes, kPageSize);
  }
  ~Mapping() { Unmap(memory_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* page(size_t index) const { return memory_ + index * kPageSize; }

 private:
  size_t bytes_;
  char* memory_;
};

bool IsMapped(void* address, size_t bytes) {
  unsigned char resident[kBytes / kPageSize];
  return mincore(address, bytes, resident) == 0;
}

TEST(Mapping, WhatAProgramChangesIsNoticed) {
  const Mapping mapping(kBytes);
  const auto is_one = [&] { return IsOneMapping(mapping.page(0), kBytes - kPageSize); };
  EXPECT_TRUE(is_one());
  mprotect(mapping.page(3), kPageSize, PROT_NONE);
  EXPECT_FALSE(is_one());
  mprotect(mapping.page(3), kPageSize, PROT_READ | PROT_WRITE);
  EXPECT_TRUE(is_one());
  for (const int advice : {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP}) {
    ASSERT_EQ(madvise(mapping.page(3), kPageSize, advice), 0);
    EXPECT_FALSE(is_one());
    ASSERT_TRUE(RenewPages(mapping.page(3), kPageSize));
    EXPECT_TRUE(is_one());
  }
  Unmap(mapping.page(3), kPageSize);
  EXPECT_FALSE(is_one());
}

TEST(Mapping, RenewedPagesReadAsZero) {
  const Mapping mapping(kBytes);
  memset(mapping.page(0), 1, kBytes);
  mprotect(mapping.page(3), 2 * kPageSize, PROT_NONE);
  ASSERT_TRUE(RenewPages(mapping.page(3), 2 * kPageSize));
  EXPECT_TRUE(IsFilled(mapping.page(3), 0, 2 * kPageSize, 0));
  EXPECT_TRUE(IsFilled(mapping.page(2), 0, kPageSize, 1));
  EXPECT_TRUE(IsFilled(mapping.page(5), 0, kPageSize, 1));
}

TEST(Mapping, WhatIsMappedAtAnAddressStays) {
  const Mapping mapping(kBytes);
  *mapping.page(2) = 7;
  EXPECT_EQ(MapAt(mapping.page(2), 4 * kPageSize, MapKind::kMemory), MapResult::kOccupied);
  EXPECT_EQ(*mapping.page(2), 7);
  Unmap(mapping.page(2), 4 * kPageSize);
  EXPECT_EQ(MapAt(mapping.page(2), 4 * kPageSize, MapKind::kChargedMemory), MapResult::kMapped);
  EXPECT_EQ(*mapping.page(2), 0);
  const auto beyond_all_addresses = reinterpret_cast<void*>(uintptr_t{1} << 62);
  EXPECT_EQ(MapAt(beyond_all_addresses, kPageSize, MapKind::kMemory), MapResult::kRefused);
}

TEST(Mapping, AMoveThatIsRefusedLeavesNoTarget) {
  const Mapping source(kBytes);
  memset(source.page(0), 1, kBytes);
  void* target = MapAligned(2 * kBytes, kPageSize);
  // The system moves no two mappings that change their size.
  ASSERT_EQ(madvise(source.page(3), kPageSize, MADV_DONTDUMP), 0);
  EXPECT_FALSE(MoveMapping(source.page(0), kBytes, 2 * kBytes, target));
  EXPECT_FALSE(IsMapped(target, kPageSize));
  EXPECT_TRUE(IsFilled(source.page(0), 0, kBytes, 1));
}

TEST(Mapping, AMoveTakesThePages) {
  Mapping source(kBytes);
  memset(source.page(0), 1, kBytes);
  char* target = static_cast<char*>(MapAligned(2 * kBytes, kPageSize));
  ASSERT_TRUE(MoveMapping(source.page(0), kBytes, 2 * kBytes, target));
  EXPECT_FALSE(IsMapped(source.page(0), kPageSize));
  EXPECT_TRUE(IsFilled(target, 0, kBytes, 1));
  EXPECT_TRUE(IsFilled(target, kBytes, 2 * kBytes, 0));
  Unmap(target, 2 * kBytes);
}

// --- huge blocks -----------------------------------------------------------------------------------------------------

TEST(HugeBlock, GrowsThoughAPartHasAnotherProperty) {
  char* block = static_cast<char*>(Allocate(40 * kMiB));
  memset(block, 1, 40 * kMiB);
  ASSERT_EQ(madvise(block + kMiB, kMiB, MADV_DONTDUMP), 0);
  block = static_cast<char*>(Reallocate(block, 400 * kMiB));
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(IsFilled(block, 0, 40 * kMiB, 1));
  Free(block);
}

// The next block of the size would have them.
TEST(HugeBlock, PropertiesOfPagesEndWithTheBlock) {
  for (const size_t offset : {size_t{0}, 10 * kMiB}) {
    char* block = static_cast<char*>(Allocate(20 * kMiB));
    ASSERT_EQ(mprotect(block + offset, kPageSize, PROT_NONE), 0);
    Free(block);
    block = static_cast<char*>(Allocate(20 * kMiB));
    memset(block, 1, 20 * kMiB);
    Free(block);
  }
}

// Else the system would not move it.
TEST(HugeBlock, IsOneMappingWithEachAdviceAboutHugePages) {
  const Thp before = core_options.thp;
  for (const Thp thp : {Thp::kDefault, Thp::kAlways, Thp::kNever}) {
    core_options.thp = thp;
    void* block = Allocate(100 * kMiB);
    EXPECT_TRUE(IsOneMapping(HugeOf(block), 100 * kMiB));
    Free(block);
    Trim();
  }
  core_options.thp = before;
}

}  // namespace
}  // namespace heaptap
