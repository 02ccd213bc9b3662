// SPDX-License-Identifier: Apache-2.0
//
// Freed huge blocks are kept for the next ones: their bounds, their contents, and that they go back to the system.
#include "allocator/core/huge_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/large.h"
#include "allocator/core/slab.h"
#include "settable_clock.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::IsFilled;
using testing::kMiB;

constexpr size_t kSize = 20 * kMiB;

uint64_t Dirty() { return ReadFigure(&heaptap_statistics::dirty); }

unsigned Kept() {
  KeptHuge kept[kMostKeptHuge];
  return ListKeptHuge(kept);
}

class HugeCache : public ::testing::Test {
 protected:
  HugeCache() {
    Trim();
    EXPECT_EQ(Kept(), 0u);
  }
  ~HugeCache() override { Trim(); }
};

char* Filled(size_t size, int value) {
  char* block = static_cast<char*>(Allocate(size));
  memset(block, value, size);
  return block;
}

TEST_F(HugeCache, TheNextBlockHasTheSameMemory) {
  const uint64_t mapped = ReadFigure(&heaptap_statistics::mapped);
  char* first = Filled(kSize, 1);
  const uint64_t before = Dirty();
  Free(first);
  EXPECT_EQ(Kept(), 1u);
  EXPECT_EQ(Dirty(), before + kSize);
  EXPECT_EQ(UsableSize(first), 0u);
  char* second = static_cast<char*>(Allocate(kSize));
  EXPECT_EQ(second, first);
  EXPECT_EQ(Dirty(), before);
  EXPECT_TRUE(IsFilled(second, 0, kSize, 1)) << "its pages are still there";
  Free(second);
  Trim();
  EXPECT_EQ(Kept(), 0u);
  EXPECT_EQ(ReadFigure(&heaptap_statistics::mapped), mapped);
}

// calloc, and realloc with zeros, see nothing of earlier blocks, whatever sizes follow one another.
TEST_F(HugeCache, ZeroedBlocksReadAsZero) {
  for (const size_t first : {20 * kMiB, 24 * kMiB, 28 * kMiB}) {
    for (const size_t second : {20 * kMiB, 24 * kMiB, 28 * kMiB}) {
      Free(Filled(first, 7));
      char* zeroed = static_cast<char*>(AllocateZeroed(1, second));
      EXPECT_TRUE(IsFilled(zeroed, 0, second, 0)) << first << " " << second;
      memset(zeroed, 7, second);
      Free(zeroed);
      char* small = Filled(17 * kMiB, 3);
      char* grown = static_cast<char*>(Reallocate(small, 28 * kMiB, {.alignment = 1, .zero = true}));
      EXPECT_TRUE(IsFilled(grown, 0, 17 * kMiB, 3));
      EXPECT_TRUE(IsFilled(grown, 21 * kMiB, 28 * kMiB, 0)) << first << " " << second;
      Free(grown);
      Trim();
    }
  }
}

TEST_F(HugeCache, AboutTheSameSizeOnly) {
  char* small = Filled(20 * kMiB, 1);
  char* large = Filled(56 * kMiB, 1);
  Free(small);
  Free(large);
  char* middle = static_cast<char*>(Allocate(24 * kMiB));
  EXPECT_EQ(UsableSize(middle), 24 * kMiB);
  EXPECT_EQ(Kept(), 1u) << "it has grown, or another mapping was in the way";
  void* again = Allocate(24 * kMiB);
  EXPECT_NE(again, large) << "more than twice the size";
  void* again_large = Allocate(48 * kMiB);
  EXPECT_EQ(again_large, large) << "cut";
  EXPECT_EQ(UsableSize(again_large), 48 * kMiB);
  for (void* block : {static_cast<void*>(middle), again, again_large}) Free(block);
}

// Many huge blocks that are freed at once go back at once, but for what the bound allows.
TEST_F(HugeCache, MuchMemoryGoesBackAtOnce) {
  std::vector<char*> blocks;
  for (int i = 0; i < 50; i++) blocks.push_back(Filled(kSize, 1));
  for (char* block : blocks) Free(block);
  EXPECT_LE(Kept() * kSize, DirtyBound());
  EXPECT_LE(Dirty(), DirtyBound());
  EXPECT_GE(Kept(), 2u);
  // More blocks than entries.
  SetDirtyDecay(-1);
  blocks.clear();
  for (unsigned i = 0; i < kMostKeptHuge + 4; i++) blocks.push_back(static_cast<char*>(Allocate(kSize)));
  for (char* block : blocks) Free(block);
  EXPECT_EQ(Kept(), kMostKeptHuge);
  SetDirtyDecay(1000);
}

// The same for large runs.
TEST_F(HugeCache, LargeRunsGoBackAtOnce) {
  std::vector<char*> blocks;
  for (int i = 0; i < 250; i++) blocks.push_back(Filled(4 * kMiB, 1));
  for (char* block : blocks) Free(block);
  EXPECT_LE(Dirty(), DirtyBound() * 5 / 4 + 4 * kMiB);
}

// The same for blocks in slabs, and for small runs: all but the bound, and the chunk that is next.
TEST_F(HugeCache, SmallBlocksGoBackAtOnce) {
  constexpr size_t kBytes = 400 * kMiB;
  for (size_t size : {size_t{100}, size_t{20000}, size_t{300000}}) {
    std::vector<char*> blocks;
    for (size_t bytes = 0; bytes < kBytes; bytes += size) blocks.push_back(Filled(size, 1));
    for (char* block : blocks) Free(block);
    EXPECT_LE(Dirty(), DirtyBound() + kChunkSize) << size;
  }
}

TEST_F(HugeCache, NothingIsKeptWithoutDecay) {
  SetDirtyDecay(0);
  Free(Filled(kSize, 1));
  EXPECT_EQ(Kept(), 0u);
  SetDirtyDecay(1000);
}

TEST_F(HugeCache, OldBlocksGoBack) {
  constexpr uint64_t kDecay = 1000;
  constexpr uint64_t kPeriod = 50;  // between two rounds of maintenance
  testing::SettableClock clock;
  SetDirtyDecay(kDecay);
  testing::TakeSlowPaths();  // the round that may be due by now
  char* first = Filled(kSize, 1);
  char* second = Filled(kSize, 1);
  Free(first);
  clock.Advance(kPeriod);
  Free(second);
  EXPECT_EQ(Kept(), 2u);
  clock.Advance(kDecay - kPeriod - 1);
  testing::TakeSlowPaths();
  EXPECT_EQ(Kept(), 2u) << "too early";
  clock.Advance(kPeriod);
  testing::TakeSlowPaths();
  EXPECT_EQ(Kept(), 1u) << "the second is younger";
  clock.Advance(kPeriod);
  testing::TakeSlowPaths();
  EXPECT_EQ(Kept(), 0u);
}

TEST_F(HugeCache, ManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; i++) {
        const size_t size = (17 + (t * 7 + i * 3) % 20) * kMiB;
        char* block = static_cast<char*>(Allocate(size));
        block[0] = block[size - 1] = static_cast<char>(t);
        std::this_thread::yield();
        EXPECT_EQ(block[0], static_cast<char>(t));
        EXPECT_EQ(block[size - 1], static_cast<char>(t));
        Free(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HugeCache, ForkInherits) {
  char* block = Filled(kSize, 1);
  Free(block);
  const pid_t child = fork();
  if (child == 0) {
    char* mine = static_cast<char*>(Allocate(kSize));
    mine[0] = 2;
    _exit(mine == block && Kept() == 0 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Kept(), 1u);
  EXPECT_EQ(block[0], 1);
}

}  // namespace
}  // namespace heaptap
