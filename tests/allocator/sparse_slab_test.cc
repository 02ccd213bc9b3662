// SPDX-License-Identifier: Apache-2.0
//
// Slabs that return the free pages between their used blocks.
#include "allocator/core/sparse_slab.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/thread.h"
#include "allocator/core/thread_totals.h"
#include "allocator/core/units.h"
#include "own_heap.h"
#include "settable_clock.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::CheckOwnHeap;
using testing::kMiB;

uint64_t Active() { return ReadFigure(&heaptap_statistics::active); }

// Blocks of one size, of which each has a content of its own.
class Blocks {
 public:
  explicit Blocks(size_t size) : size_(size) {}
  ~Blocks() { Keep(0); }

  void Fill(size_t count) {
    while (blocks_.size() < count) {
      const auto content = static_cast<unsigned char>(++number_);
      void* block = Allocate(size_);
      memset(block, content, size_);
      EXPECT_TRUE(blocks_.emplace(block, content).second) << "live already";
    }
  }
  // Frees blocks at random, all but `count`.
  void Keep(size_t count) {
    for (void* block : TakeAllBut(count)) Free(block);
  }
  // The same, but the caller frees them.
  std::vector<void*> TakeAllBut(size_t count) {
    std::vector<void*> taken;
    for (const auto& [block, content] : blocks_) taken.push_back(block);
    for (size_t i = taken.size(); i > 1; i--) std::swap(taken[i - 1], taken[Next() % i]);
    taken.resize(taken.size() - std::min(count, taken.size()));
    for (void* block : taken) blocks_.erase(block);
    return taken;
  }
  void Check() const {
    for (const auto& [block, content] : blocks_)
      ASSERT_TRUE(testing::IsFilled(block, 0, size_, content)) << "a live block has changed";
  }
  // Those that have a live block.
  std::set<const Slab*> slabs() const {
    std::set<const Slab*> slabs;
    for (const auto& [block, content] : blocks_) slabs.insert(SlabOf(block, ChunkKind(block)));
    return slabs;
  }
  void* any() const { return blocks_.begin()->first; }
  const std::map<void*, unsigned char>& all() const { return blocks_; }

 private:
  uint64_t Next() {
    state_ = state_ * 6364136223846793005 + 1442695040888963407;
    return state_ >> 33;
  }

  const size_t size_;
  uint64_t number_ = 0;
  uint64_t state_ = 1;
  std::map<void*, unsigned char> blocks_;
};

bool IsFull(const Slab* slab) { return (slab->owner.load() & kFullBit) != 0; }

void ReturnAll() {
  HeapScope heap;
  heap->ReturnAllFreePages();
}

// What ReturnFreePages requires of the slabs of this thread.
void SettleFrees() {
  HeapScope heap;
  heap->SettleFrees();
}

// Time stands still, so no page goes back because it has been free for long.
class SparseSlabs : public ::testing::Test {
 private:
  testing::SettableClock clock_;
};

class SparseSlab : public SparseSlabs, public ::testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override { Trim(); }
  size_t count() const { return 16 * kMiB / GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(, SparseSlab, ::testing::Values(128, 200, 256, 640, 1000, 1024, 2048, 3000, 4096, 5000, 16384),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(SparseSlab, ReturnsFreePagesAndTakesThemBack) {
  Blocks blocks(GetParam());
  const uint64_t before = Active();
  for (int round = 0; round < 3; round++) {
    blocks.Fill(count());
    const uint64_t full = Active();
    EXPECT_GE(full - before, 15 * kMiB);
    blocks.Keep(count() / 20);
    ReturnAll();
    CheckOwnHeap();
    blocks.Check();
    // 19 of 20 blocks are free. Where 33 of them touch a page, it is free with a probability of 0.18; where 5 do, 0.77.
    EXPECT_LT(Active() - before, (full - before) * (GetParam() < 256 ? 9 : GetParam() < 1024 ? 6 : 4) / 10) << round;
  }
  // No block gets lost: the process does not grow.
  blocks.Fill(count());
  EXPECT_LE(Active(), before + count() * kClassSize[ClassOf(GetParam())] + 2 * kMiB);
  CheckOwnHeap();
  blocks.Check();
  blocks.Keep(0);
  Trim();
  EXPECT_LE(Active(), before);
  CheckOwnHeap();
}

TEST_P(SparseSlab, IsReleasedWhenItsLastBlockIsFreed) {
  const uint64_t before = Active();
  Blocks blocks(GetParam());
  blocks.Fill(count());
  blocks.Keep(count() / 50);
  ReturnAll();
  blocks.Keep(0);
  CheckOwnHeap();
  ReturnAll();
  CheckOwnHeap();
  // But for the slab that the class keeps, and one that had a ready block.
  EXPECT_LE(Active(), before + (size_t{2} << kLongShift));
}

TEST_P(SparseSlab, AnotherThreadFreesTheRest) {
  const uint64_t before = Active();
  Blocks blocks(GetParam());
  blocks.Fill(count());
  blocks.Keep(count() / 20);
  ReturnAll();
  const std::vector<void*> rest = blocks.TakeAllBut(count() / 100);
  std::thread([&] {
    for (void* block : rest) Free(block);
  }).join();
  CheckOwnHeap();
  ReturnAll();
  CheckOwnHeap();
  blocks.Check();
  blocks.Fill(count());
  CheckOwnHeap();
  blocks.Check();
  blocks.Keep(0);
  Trim();
  EXPECT_LE(Active(), before);
}

// The owner sleeps.
TEST_P(SparseSlab, ABorrowerTakesWhatOthersHaveFreed) {
  const uint64_t before = Active();
  Blocks blocks(GetParam());
  blocks.Fill(count());
  blocks.Keep(count() / 20);
  ReturnAll();
  const uint64_t freed = ReadThreadDeallocated();
  const std::vector<void*> rest = blocks.TakeAllBut(0);
  std::thread([&] {
    for (void* block : rest) Free(block);
    Trim();
  }).join();
  EXPECT_LT(Active(), before + 2 * kMiB);
  EXPECT_EQ(ReadThreadDeallocated(), freed);
  CheckOwnHeap();
}

TEST_P(SparseSlab, TheCountersOfTheThreadAreExact) {
  const size_t size = kClassSize[ClassOf(GetParam())];
  Blocks blocks(GetParam());
  const uint64_t allocated = ReadThreadAllocated();
  const uint64_t freed = ReadThreadDeallocated();
  blocks.Fill(count());
  blocks.Keep(count() / 20);
  ReturnAll();
  EXPECT_EQ(ReadThreadAllocated() - allocated, count() * size);
  EXPECT_EQ(ReadThreadDeallocated() - freed, (count() - count() / 20) * size);
  blocks.Fill(count());
  blocks.Keep(0);
  ReturnAll();
  EXPECT_EQ(ReadThreadAllocated() - allocated, ReadThreadDeallocated() - freed);
}

// A slab of which only returned blocks are free takes them back before it counts as full.
TEST_P(SparseSlab, AFullSlabHasNoReturnedBlocks) {
  Blocks blocks(GetParam());
  blocks.Fill(count());
  blocks.Keep(count() / 20);
  ReturnAll();
  std::set<const Slab*> sparse = blocks.slabs();
  std::erase_if(sparse, [](const Slab* slab) { return slab->returned == 0; });
  ASSERT_GT(sparse.size(), 0u);
  blocks.Fill(2 * count());
  size_t full = 0;
  for (const Slab* slab : sparse) {
    if (!IsFull(slab)) continue;
    EXPECT_EQ(slab->returned, 0u);
    full++;
  }
  EXPECT_GT(full, sparse.size() / 2);
  CheckOwnHeap();
  blocks.Check();
}

// A program that changes from one size to another grows little: a slab is left alone when the heap first looks at it.
TEST_F(SparseSlabs, ANewSlabMakesOthersReturnPages) {
  testing::ExpectInNewProcess([]() -> std::string {
    Blocks first(1000);
    first.Fill(32 * 1024);
    const uint64_t before = Active();
    first.Keep(3 * 1024);
    Blocks second(300);
    second.Fill(64 * 1024);
    first.Check();
    second.Check();
    CheckOwnHeap();
    const uint64_t after = Active();
    return after < before + 6 * kMiB ? "" : "grew from " + std::to_string(before) + " to " + std::to_string(after);
  });
}

TEST_F(SparseSlabs, WhatWasFreeLongAgoGoesBack) {
  Trim();
  const uint64_t others = Active();
  Blocks blocks(1000);
  blocks.Fill(16 * 1024);
  blocks.Keep(1024);
  const auto age = [] {
    HeapScope heap;
    heap->BeginAging();
    for (int i = 0; i < 1000; i++) heap->Age();
  };
  const uint64_t before = Active();
  age();
  EXPECT_EQ(Active(), before) << "how long they have been free is not known";
  age();
  EXPECT_LT(Active() - others, (before - others) / 2);
  const uint64_t after = Active();
  age();
  EXPECT_EQ(Active(), after);
  blocks.Check();
}

TEST_F(SparseSlabs, WithoutDecayNothingGoesBack) {
  testing::ExpectInNewProcess([]() -> std::string {
    SetDirtyDecay(-1);
    Blocks first(1000);
    first.Fill(16 * 1024);
    first.Keep(1024);
    const uint64_t before = Active();
    Blocks second(300);
    second.Fill(16 * 1024);
    return Active() >= before + 4 * kMiB ? "" : "pages were returned";
  });
}

TEST_F(SparseSlabs, AFreedBlockIsKnownToBeFree) {
  Blocks blocks(1000);
  blocks.Fill(1024);
  const std::vector<void*> freed = blocks.TakeAllBut(50);
  for (void* block : freed) Free(block);
  ReturnAll();
  size_t returned = 0;
  for (void* block : freed) {
    const Slab* slab = SlabOf(block, ChunkKind(block));
    if (slab->owner.load() != reinterpret_cast<uintptr_t>(current_heap)) continue;
    EXPECT_TRUE(IsFreeBlock(slab, static_cast<Block*>(block)));
    const size_t offset = static_cast<size_t>(static_cast<char*>(block) - SlabMemory(slab));
    returned += IsReturned(slab, static_cast<uint32_t>(offset / slab->size));
  }
  EXPECT_GT(returned, 100);
  for (const auto& [block, content] : blocks.all()) {
    EXPECT_FALSE(IsFreeBlock(SlabOf(block, ChunkKind(block)), static_cast<Block*>(block)));
  }
}

// The refill that meets the list reports it.
TEST_F(SparseSlabs, ADamagedListIsLeftAlone) {
  testing::ExpectInChild([] {
    Trim();  // new slabs of other tests' classes would return pages of these
    Blocks blocks(1000);
    blocks.Fill(1024);
    blocks.Keep(50);
    SettleFrees();
    Slab* slab = SlabOf(blocks.any(), ChunkKind(blocks.any()));
    Block* first = slab->local_free;
    Block* second = first->next;
    bool is_left = true;
    for (Block* wrong : {first, reinterpret_cast<Block*>(reinterpret_cast<char*>(first) + 8),
                         reinterpret_cast<Block*>(&slab), static_cast<Block*>(nullptr)}) {
      first->next = wrong;
      is_left &= ReturnFreePages(slab) == 0 && slab->returned == 0 && slab->local_free == first;
    }
    first->next = second;
    return is_left && ReturnFreePages(slab) > 0 && slab->returned > 0;
  });
}

TEST_F(SparseSlabs, LockedMemoryStays) {
  testing::ExpectInChild([] {
    Trim();  // new slabs of other tests' classes would return pages of these
    Blocks blocks(1000);
    blocks.Fill(1024);
    blocks.Keep(50);
    SettleFrees();
    Slab* slab = SlabOf(blocks.any(), ChunkKind(blocks.any()));
    // The sanitizers' mlock does nothing.
    if (syscall(SYS_mlock, SlabMemory(slab), size_t{1} << kShortShift) != 0) return false;
    bool is_left = ReturnFreePages(slab) == 0 && slab->returned == 0;
    syscall(SYS_munlock, SlabMemory(slab), size_t{1} << kShortShift);
    blocks.Check();
    return is_left && ReturnFreePages(slab) > 0;
  });
}

}  // namespace
}  // namespace heaptap
