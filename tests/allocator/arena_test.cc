// SPDX-License-Identifier: Apache-2.0
//
// Explicit arenas: what is allocated in them, what is told of them, and what becomes of it.
#include "allocator/core/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/arena_life.h"
#include "allocator/core/control.h"
#include "allocator/core/size_class.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/platform/random.h"
#include "allocator/platform/system.h"
#include "allocator/profiling/profiling.h"
#include "mallctl_values.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::ClearBooks;
using testing::Do;
using testing::ExpectInChild;
using testing::Get;
using testing::IsFilled;
using testing::kMiB;
using testing::ReadBooks;
using testing::SamplingOn;
using testing::Set;

unsigned Create() { return Get<unsigned>("arenas.create"); }

std::string Name(unsigned arena, const char* rest) { return "arena." + std::to_string(arena) + "." + rest; }

std::string Figure(size_t arena, const char* rest) { return "stats.arenas." + std::to_string(arena) + "." + rest; }

// An arena for the length of a test.
class OwnArena {
 public:
  OwnArena() : index_(Create()) {}
  ~OwnArena() { EXPECT_EQ(Do(Name(index_, "destroy")), 0); }
  operator unsigned() const { return index_; }

 private:
  unsigned index_;
};

void* AllocateIn(unsigned arena, size_t size, size_t alignment = 1, bool zero = false) {
  return AllocateExtended(size, {.alignment = alignment, .zero = zero, .arena = static_cast<ArenaIndex>(arena)});
}

std::unique_ptr<Snapshot> Take(size_t arena) {
  auto snapshot = std::make_unique<Snapshot>();
  TakeSnapshot();
  LastSnapshot(snapshot.get(), arena);
  return snapshot;
}

// Sizes of each kind of block: of slabs, runs, huge ones.
constexpr size_t kSizes[] = {1, 16, 100, 1024, 2048, 14336, kSmallMaximum, kSmallMaximum + 1, kMiB, 20 * kMiB};

TEST(Arena, BlocksOfAllKindsBelongToTheirArena) {
  OwnArena arena;
  OwnArena other;
  ASSERT_NE(unsigned{arena}, unsigned{other});
  for (const size_t size : kSizes) {
    for (const size_t alignment : {size_t{1}, size_t{64}, size_t{1} << 16, size_t{64} << 20}) {
      void* block = AllocateIn(arena, size, alignment);
      void* others = AllocateIn(other, size, alignment);
      void* own = AllocateAligned(alignment, size);
      EXPECT_EQ(ArenaOfBlock(block), unsigned{arena}) << size;
      EXPECT_EQ(ArenaOfBlock(others), unsigned{other}) << size;
      EXPECT_EQ(ArenaOfBlock(own), 0) << size;
      EXPECT_TRUE(testing::IsAligned(block, alignment));
      memset(block, 1, size);
      memset(others, 2, size);
      memset(own, 3, size);
      EXPECT_TRUE(IsFilled(block, 0, size, 1) && IsFilled(others, 0, size, 2) && IsFilled(own, 0, size, 3)) << size;
      for (void* pointer : {block, others, own}) Free(pointer);
    }
  }
}

TEST(Arena, ZeroedBlocksReadAsZero) {
  OwnArena arena;
  for (const size_t size : kSizes) {
    for (int round = 0; round < 3; round++) {
      void* block = AllocateIn(arena, size, 1, true);
      EXPECT_TRUE(IsFilled(block, 0, UsableSize(block), 0)) << size;
      memset(block, 0xFF, UsableSize(block));
      Free(block);
    }
  }
}

TEST(Arena, LookupTellsTheArenaOfABlock) {
  OwnArena arena;
  void* pointer = AllocateIn(arena, 100);
  unsigned found = 0;
  size_t length = sizeof(found);
  EXPECT_EQ(Mallctl("arenas.lookup", &found, &length, &pointer, sizeof(pointer)), 0);
  EXPECT_EQ(found, unsigned{arena});
  Free(pointer);
}

// --- figures ---------------------------------------------------------------------------------------------------------

TEST(ArenaFigures, AreExact) {
  OwnArena arena;
  OwnArena other;
  constexpr unsigned kCount = 300;
  const size_t of_main = Take(0)->allocated;
  std::vector<void*> blocks;
  size_t bytes = 0;
  for (const size_t size : {size_t{24}, size_t{5000}, size_t{40000}}) {
    for (unsigned i = 0; i < kCount; i++) {
      blocks.push_back(AllocateIn(arena, size));
      bytes += UsableSize(blocks.back());
    }
  }
  blocks.push_back(AllocateIn(arena, 20 * kMiB));
  bytes += UsableSize(blocks.back());
  auto during = Take(arena);
  EXPECT_EQ(during->allocated, bytes);
  EXPECT_EQ(during->bins[ClassOf(24)].live, kCount);
  EXPECT_EQ(during->bins[ClassOf(24)].requests, kCount);
  EXPECT_EQ(during->extents[ClassNumber(UsableSize(blocks.back())) - kSmallClasses].live, 1u);
  EXPECT_GE(during->active, bytes);
  EXPECT_LE(during->resident, during->mapped);
  EXPECT_EQ(Get<size_t>(Figure(arena, "small.allocated")) + Get<size_t>(Figure(arena, "large.allocated")), bytes);
  EXPECT_EQ(Get<size_t>(Figure(arena, "pactive")), during->active / kPageSize);
  EXPECT_EQ(Take(other)->allocated, 0u);
  EXPECT_EQ(Take(0)->allocated, of_main) << "the blocks count for their arena only";
  auto sums = Take(kAllArenas);
  Snapshot main;
  LastSnapshot(&main, 0);
  EXPECT_EQ(sums->allocated, main.allocated + bytes);
  // The thread frees them remotely; that counts at once.
  for (void* block : blocks) Free(block);
  auto after = Take(arena);
  EXPECT_EQ(after->allocated, 0u);
  EXPECT_EQ(after->bins[ClassOf(24)].frees, after->bins[ClassOf(24)].allocations);
}

TEST(ArenaFigures, ANewArenaHasNone) {
  Set("epoch", uint64_t{1});
  OwnArena arena;
  EXPECT_EQ(Get<size_t>(Figure(arena, "small.allocated")), 0u);
  EXPECT_EQ(Get<size_t>(Figure(arena, "pactive")), 0u);
}

TEST(ArenaFigures, ResidentMemoryIsThatOfItsBlocks) {
  OwnArena arena;
  const size_t before = Take(arena)->resident;
  constexpr size_t kBlocks = 64;
  std::vector<void*> blocks;
  for (size_t i = 0; i < kBlocks; i++) {
    blocks.push_back(AllocateIn(arena, kMiB));
    memset(blocks.back(), 1, kMiB);
  }
  const size_t resident = Take(arena)->resident;
  EXPECT_GE(resident, before + kBlocks * kMiB);
  EXPECT_LE(resident, before + (kBlocks + 1) * kMiB);
  for (void* block : blocks) Free(block);
}

// --- realloc ---------------------------------------------------------------------------------------------------------

TEST(Arena, ReallocMovesABlockToTheNamedArena) {
  OwnArena arena;
  const ArenaIndex index = static_cast<ArenaIndex>(unsigned{arena});
  for (const auto& [from, to] :
       {std::pair<size_t, size_t>{100, 1000}, {1000, kMiB}, {kMiB, 100}, {20 * kMiB, 40 * kMiB}}) {
    void* block = Allocate(from);
    memset(block, 7, from);
    // A huge block must not grow in place.
    void* behind = static_cast<char*>(block) + from;
    if (from > kRunMaximum)
      mmap(behind, kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    block = Reallocate(block, to, {.arena = index});
    EXPECT_EQ(ArenaOfBlock(block), index) << from;
    EXPECT_TRUE(IsFilled(block, 0, from < to ? from : to, 7)) << from;
    void* back = Reallocate(block, from);
    EXPECT_EQ(ArenaOfBlock(back), back == block ? index : 0) << from << ": where it moves, because no arena is named";
    Free(back);
  }
}

// --- reset and destroy -----------------------------------------------------------------------------------------------

uint64_t UsedOrDirty() { return ReadFigure(&heaptap_statistics::active) + ReadFigure(&heaptap_statistics::dirty); }

std::vector<void*> FillWithAll(unsigned arena) {
  std::vector<void*> blocks;
  for (const size_t size : kSizes) {
    for (size_t i = 0; i < (size > kMiB ? 1 : 100); i++) {
      blocks.push_back(AllocateIn(arena, size));
      memset(blocks.back(), 1, size);
    }
  }
  // Some are free already, and not all of them collected.
  for (size_t i = 0; i < blocks.size(); i += 3) Free(blocks[i]);
  return blocks;
}

TEST(Arena, ResetFreesAllBlocks) {
  OwnArena arena;
  void* kept = Allocate(100);
  memset(kept, 5, 100);
  for (int round = 0; round < 3; round++) {
    FillWithAll(arena);
    EXPECT_GT(Take(arena)->allocated, 20 * kMiB);
    EXPECT_EQ(Do(Name(arena, "reset")), 0);
    auto after = Take(arena);
    EXPECT_EQ(after->allocated, 0u);
    EXPECT_EQ(after->active, 0u);
    for (const ClassStatistics& bin : after->bins) EXPECT_EQ(bin.slabs, 0u);
  }
  EXPECT_TRUE(IsFilled(kept, 0, 100, 5));
  Free(kept);
}

TEST(Arena, DestroyGivesTheMemoryBack) {
  const unsigned arena = Create();
  Trim();
  const uint64_t before = UsedOrDirty();
  FillWithAll(arena);
  Trim();
  EXPECT_GT(UsedOrDirty(), before + 60 * kMiB);
  EXPECT_EQ(Do(Name(arena, "destroy")), 0);
  EXPECT_LE(UsedOrDirty(), before);
  EXPECT_EQ(Do(Name(arena, "destroy")), EFAULT);
  EXPECT_EQ(Do(Name(arena, "reset")), EFAULT);
  EXPECT_FALSE(Get<bool>(Name(arena, "initialized")));
  EXPECT_EQ(Set("thread.arena", arena), EFAULT);
}

TEST(Arena, TheIndexOfADestroyedArenaIsUsedAgain) {
  const unsigned first = Create();
  const unsigned second = Create();
  const unsigned count = Get<unsigned>("arenas.narenas");
  void* block = AllocateIn(second, 3000);
  Free(block);
  EXPECT_EQ(Do(Name(first, "destroy")), 0);
  EXPECT_EQ(Do(Name(second, "destroy")), 0);
  EXPECT_EQ(Create(), second) << "that of the last one";
  EXPECT_EQ(Create(), first);
  EXPECT_EQ(Get<unsigned>("arenas.narenas"), count);
  EXPECT_EQ(Take(second)->bins[ClassOf(3000)].allocations, 0u) << "the new one has its own figures";
  EXPECT_EQ(Do(Name(first, "destroy")), 0);
  EXPECT_EQ(Do(Name(second, "destroy")), 0);
}

TEST(Arena, FiguresOfDestroyedArenasAddUp) {
  constexpr uint64_t kCount = 40;
  uint64_t counted[2] = {};
  for (int round = 0; round < 2; round++) {
    const unsigned arena = Create();
    for (uint64_t i = 0; i < kCount; i++) AllocateIn(arena, 3000);
    EXPECT_EQ(Do(Name(arena, "destroy")), 0);
    EXPECT_TRUE(Get<bool>("arena.4097.initialized"));
    const std::string bin = Figure(kDestroyedArenas, "bins.") + std::to_string(ClassOf(3000));
    counted[round] = Get<uint64_t>(bin + ".nrequests");
    EXPECT_EQ(Get<size_t>(bin + ".curregs"), 0u);
  }
  EXPECT_EQ(counted[1] - counted[0], kCount);
}

TEST(Arena, TheFiguresOfDestroyedArenasExistOnceThereIsOne) {
  testing::ExpectInNewProcess([]() -> std::string {
    if (Do("stats.arenas.4097.mapped") != ENOENT || Get<bool>("arena.4097.initialized"))
      return "there are some at first";
    if (Get<unsigned>("arenas.narenas") != 1) return "there are arenas at first";
    Do(Name(Create(), "destroy"));
    if (Get<size_t>("stats.arenas.4097.pactive") != 0 || !Get<bool>("arena.4097.initialized")) return "there are none";
    return "";
  });
}

TEST(Arena, ResetReportsTheFreeOfEachSample) {
  std::thread([] {
    SamplingOn sampling(0);
    OwnArena arena;
    ClearBooks();
    FillWithAll(arena);
    EXPECT_GT(ReadBooks().allocs, 600u);
    EXPECT_EQ(Do(Name(arena, "reset")), 0);
    EXPECT_EQ(ReadBooks().frees, ReadBooks().allocs);
    EXPECT_EQ(ReadBooks().errors, 0u);
  }).join();
}

TEST(Arena, SamplesFollowTheLaw) {
  std::thread([] {
    constexpr uint32_t kLg = 12;
    SamplingOn sampling(kLg);
    OwnArena arena;
    Free(AllocateIn(arena, 100));
    ClearBooks();
    constexpr uint64_t kTrials = 40000;
    for (uint64_t i = 0; i < kTrials; i++) Free(AllocateIn(arena, 112));
    EXPECT_TRUE(testing::IsBinomial(ReadBooks().allocs, kTrials, testing::SampleProbability(112, kLg)))
        << ReadBooks().allocs;
    EXPECT_EQ(ReadBooks().errors, 0u);
  }).join();
}

// --- threads ---------------------------------------------------------------------------------------------------------

TEST(ArenaThreads, ABoundThreadAllocatesInItsArena) {
  OwnArena arena;
  std::thread([&] {
    void* before = Allocate(100);
    EXPECT_EQ(Get<unsigned>("thread.arena"), 0u);
    ASSERT_EQ(Set("thread.arena", unsigned{arena}), 0);
    EXPECT_EQ(Get<unsigned>("thread.arena"), unsigned{arena});
    for (const size_t size : kSizes) {
      void* block = Allocate(size);
      EXPECT_EQ(ArenaOfBlock(block), unsigned{arena}) << size;
      EXPECT_EQ(ArenaOfBlock(AllocateIn(0, size)), 0) << size;
      Free(block);
    }
    Free(before);
    EXPECT_EQ(Take(arena)->threads, 1u);
    EXPECT_EQ(Do(Name(arena, "destroy")), EFAULT) << "a thread is bound to it";
    ASSERT_EQ(Set("thread.arena", 0u), 0);
    void* after = Allocate(100);
    EXPECT_EQ(ArenaOfBlock(after), 0);
    Free(after);
    EXPECT_EQ(Take(arena)->threads, 0u);
    EXPECT_EQ(Set("thread.arena", 4000u), EFAULT);
  }).join();
}

TEST(ArenaThreads, ThreadsAreNotSampledWhenTheySaidSo) {
  OwnArena arena;
  std::thread([&] {
    SamplingOn sampling(0);
    { HeapScope attach; }
    SetThreadActive(false);
    ASSERT_EQ(Set("thread.arena", unsigned{arena}), 0);
    ClearBooks();
    Free(Allocate(100));
    EXPECT_EQ(ReadBooks().allocs, 0u);
  }).join();
}

TEST(ArenaThreads, AnEndedThreadLeavesItsHeapToItsArena) {
  OwnArena arena;
  const Heap* heap = nullptr;
  std::thread([&] {
    ASSERT_EQ(Set("thread.arena", unsigned{arena}), 0);
    heap = current_heap;
    Free(Allocate(100));
  }).join();
  std::thread([&] {
    Free(Allocate(100));
    EXPECT_NE(current_heap, heap) << "a thread of arena 0 does not get it";
    ASSERT_EQ(Set("thread.arena", unsigned{arena}), 0);
    EXPECT_EQ(current_heap, heap);
  }).join();
}

TEST(ArenaThreads, ResetTakesTheBlocksOfBoundThreads) {
  OwnArena arena;
  std::atomic<int> step = 0;
  auto wait_for = [&](int wanted) {
    while (step.load() != wanted) std::this_thread::yield();
  };
  std::thread bound([&] {
    ASSERT_EQ(Set("thread.arena", unsigned{arena}), 0);
    for (int i = 0; i < 10000; i++) Allocate(100);
    step = 1;
    wait_for(2);
    void* block = Allocate(100);
    memset(block, 1, 100);
    EXPECT_EQ(ArenaOfBlock(block), unsigned{arena});
    Free(block);
    Set("thread.arena", 0u);
  });
  wait_for(1);
  EXPECT_GT(Take(arena)->allocated, 1000000u);
  EXPECT_EQ(Do(Name(arena, "reset")), 0);
  EXPECT_EQ(Take(arena)->allocated, 0u);
  step = 2;
  bound.join();
}

// Threads allocate in shared heaps and free what others have allocated. A block that is handed out twice has another's
// contents.
TEST(ArenaThreads, ShareAnArena) {
  OwnArena arena;
  constexpr int kThreads = 4;
  constexpr int kSlots = 64;
  std::atomic<unsigned char*> slots[kSlots] = {};
  auto discard = [](unsigned char* block) {
    if (block == nullptr) return;
    const size_t usable = UsableSize(block);
    EXPECT_TRUE(IsFilled(block, 0, usable, block[0]));
    Free(block);
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; number++) {
    threads.emplace_back([&, number] {
      Random random;
      random.Seed(1, static_cast<uint64_t>(number));
      for (int i = 0; i < 20000; i++) {
        const uint64_t draw = random.Next();
        auto* block = static_cast<unsigned char*>(AllocateIn(arena, draw % 3000));
        memset(block, number + 1, UsableSize(block));
        discard(slots[draw >> 32 & (kSlots - 1)].exchange(block));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : slots) discard(slot.load());
  EXPECT_EQ(Take(arena)->allocated, 0u);
}

TEST(ArenaThreads, AnIdleArenaGivesBackWhatOthersHaveFreed) {
  OwnArena arena;
  std::vector<void*> blocks;
  for (int i = 0; i < 20000; i++) blocks.push_back(AllocateIn(arena, 500));
  const uint64_t used = ReadFigure(&heaptap_statistics::active);
  for (void* block : blocks) Free(block);
  // One arena a round.
  for (unsigned i = 0; i < ArenaCount(); i++) ReturnMemory();
  EXPECT_LT(ReadFigure(&heaptap_statistics::active), used - 8 * kMiB);
}

// --- fork ------------------------------------------------------------------------------------------------------------

TEST(ArenaFork, TheChildHasTheArenas) {
  OwnArena arena;
  void* block = AllocateIn(arena, 100);
  memset(block, 9, 100);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) Free(AllocateIn(arena, 64));
  });
  for (int i = 0; i < 20; i++) {
    ExpectInChild([&] {
      const bool is_whole = IsFilled(block, 0, 100, 9);
      for (int j = 0; j < 1000; j++) Free(AllocateIn(arena, 64));
      Free(block);
      return is_whole && Take(arena)->allocated <= 64 && Do(Name(arena, "destroy")) == 0;
    });
  }
  stop = true;
  busy.join();
  Free(block);
}

// --- limits ----------------------------------------------------------------------------------------------------------

TEST(Arena, ThereAreAsManyAsFlagsCanName) {
  ExpectInChild([] {
    while (MakeArena() != nullptr) continue;
    unsigned arena;
    size_t length = sizeof(arena);
    const bool is_refused = Mallctl("arenas.create", &arena, &length, nullptr, 0) == EAGAIN;
    void* block = AllocateIn(kMostArenas - 1, 100);
    return is_refused && ArenaCount() == kMostArenas && block != nullptr && ArenaOfBlock(block) == kMostArenas - 1;
  });
}

TEST(Arena, HooksForExtentsAreRefused) {
  const unsigned count = Get<unsigned>("arenas.narenas");
  void* hooks = &errno;
  unsigned arena = 77;
  size_t length = sizeof(arena);
  EXPECT_EQ(Mallctl("arenas.create", &arena, &length, &hooks, sizeof(hooks)), EFAULT);
  EXPECT_EQ(Get<unsigned>("arenas.narenas"), count);
}

TEST(Arena, ArenaZeroCannotBeDiscarded) {
  EXPECT_EQ(Do("arena.0.reset"), EFAULT);
  EXPECT_EQ(Do("arena.0.destroy"), EFAULT);
  EXPECT_EQ(Do("arena.4096.reset"), EFAULT);
}

}  // namespace
}  // namespace heaptap
