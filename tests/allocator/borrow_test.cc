// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/borrow.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/slab.h"
#include "allocator/core/thread.h"
#include "allocator/core/thread_totals.h"
#include "settable_clock.h"

namespace heaptap {
namespace {

constexpr size_t kSize = 1000;
constexpr size_t kBlocks = 30000;
constexpr uint64_t kBytes = kSize * kBlocks;

uint64_t Active() { return ReadFigure(&heaptap_statistics::active); }

// A thread that does what it is told, and sleeps in between.
class Sleeper {
 public:
  Sleeper() : thread_([this] { Run(); }) {}
  ~Sleeper() {
    Do([this] { is_over_ = true; });
    thread_.join();
  }

  template <typename Task>
  void Do(const Task& task) {
    task_ = [](const void* opaque) { (*static_cast<const Task*>(opaque))(); };
    opaque_ = &task;
    turn_.store(1, std::memory_order_release);
    turn_.notify_all();
    turn_.wait(1, std::memory_order_acquire);
  }

 private:
  void Run() {
    while (!is_over_) {
      turn_.wait(0, std::memory_order_acquire);
      task_(opaque_);
      turn_.store(0, std::memory_order_release);
      turn_.notify_all();
    }
  }

  std::atomic<int> turn_ = 0;
  void (*task_)(const void*) = nullptr;
  const void* opaque_ = nullptr;
  bool is_over_ = false;
  std::thread thread_;
};

std::vector<void*> AllocateMany() {
  std::vector<void*> blocks(kBlocks);
  for (void*& block : blocks) {
    block = Allocate(kSize);
    memset(block, 1, kSize);
  }
  return blocks;
}

TEST(Borrow, TrimReachesWhatASleepingThreadHolds) {
  Sleeper sleeper;
  std::vector<void*> blocks;
  const uint64_t before = Active();
  sleeper.Do([&] { blocks = AllocateMany(); });
  EXPECT_GT(Active(), before + kBytes / 2);
  for (void* block : blocks) Free(block);
  EXPECT_GT(Active(), before + kBytes / 2);
  Trim();
  EXPECT_LT(Active(), before + kBytes / 10);
  // The owner goes on, and its counters are exact.
  sleeper.Do([&] {
    const uint64_t freed = ReadThreadDeallocated();
    for (void* block : AllocateMany()) Free(block);
    EXPECT_EQ(ReadThreadDeallocated() - freed, kBlocks * kClassSize[ClassOf(kSize)]);
  });
}

// Some of the blocks were freed by the owner, whose counter must have them.
TEST(Borrow, TheOwnersFreesAreCounted) {
  Sleeper sleeper;
  std::vector<void*> blocks;
  uint64_t freed = 0;
  sleeper.Do([&] {
    freed = ReadThreadDeallocated();
    blocks = AllocateMany();
    for (size_t i = 0; i < kBlocks; i += 2) Free(blocks[i]);
  });
  for (size_t i = 1; i < kBlocks; i += 2) Free(blocks[i]);
  Trim();
  sleeper.Do([&] { EXPECT_EQ(ReadThreadDeallocated() - freed, kBlocks / 2 * kClassSize[ClassOf(kSize)]); });
}

// Blocks that the owner still uses stay, and so do their slabs.
TEST(Borrow, LiveBlocksStay) {
  Sleeper sleeper;
  std::vector<void*> blocks;
  sleeper.Do([&] { blocks = AllocateMany(); });
  for (size_t i = 0; i < kBlocks; i++) {
    if (i % 10 != 0) Free(blocks[i]);
  }
  Trim();
  std::vector<void*> others = AllocateMany();
  for (void* block : others) memset(block, 2, kSize);
  for (size_t i = 0; i < kBlocks; i += 10) {
    EXPECT_EQ(static_cast<char*>(blocks[i])[kSize - 1], 1);
  }
  sleeper.Do([&] {
    for (size_t i = 0; i < kBlocks; i += 10) Free(blocks[i]);
  });
  for (void* block : others) Free(block);
}

// The owner's slow paths wait for a borrower, so it goes on in steps of a bounded number of slabs.
TEST(Borrow, AStepVisitsABoundedNumberOfSlabs) {
  Sleeper sleeper;
  std::vector<void*> blocks;
  Heap* heap = nullptr;
  sleeper.Do([&] {
    blocks = AllocateMany();
    for (size_t i = 0; i < kBlocks; i += 2) Free(blocks[i]);
    heap = current_heap;
  });
  constexpr uint32_t kMost = 10;
  uint32_t steps = 1;
  LockHeaps();
  {
    BorrowedHeap borrowed(heap);
    ASSERT_TRUE(borrowed);
    const SlabList& queue = heap->classes[ClassOf(kSize)].queue;
    const Slab* const first = queue.first();
    const uint32_t slabs = queue.count();
    ASSERT_GT(slabs, 10 * kMost);
    QueuePosition position;
    Slab* free_slabs = nullptr;
    while (!borrowed->ReclaimQueues(kMost, &position, &free_slabs)) steps++;
    EXPECT_GE(steps, slabs / kMost);
    EXPECT_EQ(queue.first(), first);
    EXPECT_EQ(queue.count(), slabs);
    EXPECT_EQ(free_slabs, nullptr);
  }
  UnlockHeaps();
  for (size_t i = 1; i < kBlocks; i += 2) Free(blocks[i]);
}

// Between two rounds of maintenance.
constexpr uint64_t kRoundMilliseconds = 50;

// In so many rounds each heap is looked at twice: the first look notes how far its thread has come, and if the thread
// has not come further at the second one, the heap is borrowed.
uint64_t RoundsToSeeAllHeaps() {
  constexpr uint64_t kLooksPerRound = 16;
  uint64_t heaps = 0;
  VisitHeaps([](void* count, const Heap*) { ++*static_cast<uint64_t*>(count); }, &heaps);
  return 2 * (heaps / kLooksPerRound + 1) + 1;
}

// A thread that allocates gets what was freed to a sleeping thread, without a call of Trim.
TEST(Borrow, OthersReuseWhatASleepingThreadHolds) {
  Sleeper sleeper;
  std::vector<void*> blocks;
  const uint64_t before = Active();
  sleeper.Do([&] { blocks = AllocateMany(); });
  for (void* block : blocks) Free(block);
  testing::SettableClock clock;
  for (uint64_t round = RoundsToSeeAllHeaps(); round != 0; round--) {
    clock.Advance(kRoundMilliseconds);
    testing::TakeSlowPaths();
  }
  EXPECT_LT(Active(), before + kBytes / 10);
}

// One thread trims all the time, while others free each other's blocks: each block has the contents that it was given.
TEST(Borrow, WhileOwnersGoOn) {
  constexpr int kThreads = 3;
  constexpr size_t kSlots = 3000;
  constexpr int kSteps = 60000;
  static std::atomic<char*> slots[kSlots];
  std::atomic<int> running = kThreads;
  std::atomic<int> changed = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      uint32_t state = t + 1;
      for (int i = 0; i < kSteps; i++) {
        state = state * 1664525 + 1013904223;
        const size_t size = 512 + (state >> 20) % 1600;
        auto* block = static_cast<char*>(Allocate(size));
        memset(block, static_cast<char>(size), size);
        memcpy(block, &size, sizeof(size));
        char* old = slots[(state >> 8) % kSlots].exchange(block);
        if (old == nullptr) continue;
        size_t old_size;
        memcpy(&old_size, old, sizeof(old_size));
        if (old[old_size - 1] != static_cast<char>(old_size)) changed++;
        Free(old);
      }
      running--;
    });
  }
  while (running != 0) Trim();
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : slots) Free(slot.exchange(nullptr));
  EXPECT_EQ(changed, 0);
}

// A fork in the middle of it all: the child's heaps are not borrowed.
TEST(Borrow, ChildOfAFork) {
  Sleeper sleeper;
  std::vector<void*> blocks;
  sleeper.Do([&] { blocks = AllocateMany(); });
  std::atomic<bool> stop = false;
  std::thread trimming([&] {
    while (!stop) Trim();
  });
  for (int i = 0; i < 20; i++) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (void* block : blocks) Free(block);
      for (void* block : AllocateMany()) Free(block);
      _exit(Trim() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  stop = true;
  trimming.join();
  for (void* block : blocks) Free(block);
}

}  // namespace
}  // namespace heaptap
