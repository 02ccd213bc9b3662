// SPDX-License-Identifier: Apache-2.0
//
// Each test counts by itself what a thread does, on a thread of its own, whose counters begin at 0. Threads and
// containers come from libc's malloc here, so nothing else is counted.
#include "allocator/core/thread_totals.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/platform/random.h"
#include "recorder.h"

namespace heaptap {
namespace {

template <typename Function>
void OnThread(Function function) {
  std::thread(function).join();
}

// What the calling thread has done since it was made.
struct Account {
  uint64_t allocated = 0;
  uint64_t deallocated = 0;

  void* Make(size_t size) {
    void* pointer = Allocate(size);
    allocated += UsableSize(pointer);
    return pointer;
  }
  void Discard(void* pointer) {
    deallocated += UsableSize(pointer);
    Free(pointer);
  }
  void* Resize(void* pointer, size_t size) {
    deallocated += UsableSize(pointer);
    void* result = Reallocate(pointer, size);
    allocated += UsableSize(result);
    return result;
  }
  void ExpectExact() const {
    EXPECT_LE(*ThreadAllocatedCounter(), allocated);
    EXPECT_LE(*ThreadDeallocatedCounter(), deallocated);
    EXPECT_EQ(ReadThreadAllocated(), allocated);
    EXPECT_EQ(ReadThreadDeallocated(), deallocated);
    EXPECT_EQ(*ThreadAllocatedCounter(), allocated);
    EXPECT_EQ(*ThreadDeallocatedCounter(), deallocated);
  }
};

size_t RandomSize(Random* random) {
  uint64_t kind = random->Next() % 1000;
  return 1 + random->Next() % (kind < 800 ? 600 : kind < 980 ? 32768 : kind < 999 ? 2 << 20 : 20 << 20);
}

void Work(Account* account, Random* random, std::vector<void*>* blocks, int steps) {
  for (int i = 0; i < steps; i++) {
    void*& slot = (*blocks)[random->Next() % blocks->size()];
    if (slot == nullptr) {
      slot = account->Make(RandomSize(random));
    } else if (random->Next() % 4 == 0) {
      slot = account->Resize(slot, random->Next() % 2 == 0 ? UsableSize(slot) : RandomSize(random));
    } else {
      account->Discard(slot);
      slot = nullptr;
    }
    if (i % 512 == 0) account->ExpectExact();
    if (i % 4096 == 4095) Trim();
  }
}

void DiscardAll(Account* account, std::vector<void*>* blocks) {
  for (void*& pointer : *blocks) {
    if (pointer != nullptr) account->Discard(pointer);
    pointer = nullptr;
  }
}

TEST(ThreadCounters, BeginAtNothing) {
  std::vector<void*> left;
  for (int i = 0; i < 3; i++) {
    // From the second round on the heap is an adopted one, with slabs that its last thread has left in use.
    OnThread([&] {
      Account account;
      account.ExpectExact();
      std::vector<void*> freed;
      for (int j = 0; j < 1000; j++) {
        freed.push_back(account.Make(500));
        left.push_back(account.Make(500));
      }
      void* pointer = account.Make(100);
      account.ExpectExact();
      account.Discard(pointer);
      account.ExpectExact();
      for (void* block : freed) Free(block);  // and nobody asks
    });
  }
  for (void* pointer : left) Free(pointer);
}

TEST(ThreadCounters, AreExact) {
  OnThread([] {
    Account account;
    Random random;
    random.Seed(7, 1);
    std::vector<void*> blocks(2000);
    Work(&account, &random, &blocks, 60000);
    DiscardAll(&account, &blocks);
    account.ExpectExact();
    EXPECT_EQ(account.allocated, account.deallocated);
  });
}

TEST(ThreadCounters, AreExactWhileSamplesAreTaken) {
  for (uint32_t lg : {0u, 10u}) {
    testing::SamplingOn on(lg);
    OnThread([] {
      Account account;
      Random random;
      random.Seed(8, 1);
      std::vector<void*> blocks(500);
      Work(&account, &random, &blocks, 8000);
      DiscardAll(&account, &blocks);
      account.ExpectExact();
    });
  }
}

TEST(ThreadCounters, AlignedAndZeroedBlocksCount) {
  OnThread([] {
    Account account;
    for (size_t alignment : {size_t{64}, size_t{8192}, size_t{1} << 20, size_t{64} << 20}) {
      void* pointer = AllocateAligned(alignment, 100);
      account.allocated += UsableSize(pointer);
      account.ExpectExact();
      account.Discard(pointer);
      account.ExpectExact();
    }
    void* pointer = AllocateZeroed(3, 1000);
    account.allocated += UsableSize(pointer);
    account.Discard(pointer);
    account.ExpectExact();
  });
}

// The counter behind the pointer follows without a read.
TEST(ThreadCounters, PointersFollowWithinABatch) {
  OnThread([] {
    constexpr size_t kSize = 64;
    constexpr size_t kSlab = size_t{1} << kShortShift;
    uint64_t* allocated = ThreadAllocatedCounter();
    uint64_t* deallocated = ThreadDeallocatedCounter();
    Account account;
    uint64_t last = 0;
    std::vector<void*> blocks;
    for (int i = 0; i < 100000; i++) {
      blocks.push_back(account.Make(kSize));
      ASSERT_GE(*allocated, last);
      ASSERT_LE(*allocated, account.allocated);
      ASSERT_GE(*allocated + kSlab, account.allocated);
      last = *allocated;
    }
    EXPECT_EQ(*deallocated, 0);
    for (void* pointer : blocks) account.Discard(pointer);
    EXPECT_LE(*deallocated, account.deallocated);
    // Empty slabs have been settled but for the one that is kept.
    EXPECT_GE(*deallocated + 2 * kSlab, account.deallocated);
  });
}

TEST(ThreadCounters, WhoeverFreesCounts) {
  std::vector<void*> blocks;
  uint64_t bytes = 0;
  OnThread([&] {
    Account account;
    Random random;
    random.Seed(9, 1);
    for (int i = 0; i < 3000; i++) blocks.push_back(account.Make(RandomSize(&random)));
    bytes = account.allocated;
    OnThread([&] {
      Account other;
      for (void* pointer : blocks) other.Discard(pointer);
      EXPECT_EQ(other.deallocated, bytes);
      other.ExpectExact();
    });
    account.ExpectExact();
    // Collecting what others have freed is nobody's free.
    for (int i = 0; i < 3000; i++) blocks[static_cast<size_t>(i)] = account.Make(RandomSize(&random));
    account.ExpectExact();
    for (void* pointer : blocks) account.Discard(pointer);
    account.ExpectExact();
  });
}

// A thread that only frees has no heap of its own for it.
TEST(ThreadCounters, AThreadWithoutAHeapCountsItsFrees) {
  std::vector<void*> blocks;
  for (int i = 0; i < 100; i++) blocks.push_back(Allocate(100));
  OnThread([&] {
    uint64_t* deallocated = ThreadDeallocatedCounter();
    for (void* pointer : blocks) Free(pointer);
    EXPECT_EQ(*deallocated, 100 * UsableSize(Allocate(100)));
  });
}

// Destructors of thread-specific values run after the heap was parked, on the fallback heap.
TEST(ThreadCounters, LateThreadsCountToo) {
  static constinit uint64_t late_allocated = 0;
  static constinit uint64_t late_deallocated = 0;
  static pthread_key_t key;
  static bool done;
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* argument) {
                                 if (current_heap != &empty_heap) {
                                   pthread_setspecific(key, argument);
                                   return;
                                 }
                                 uint64_t allocated = ReadThreadAllocated();
                                 uint64_t deallocated = ReadThreadDeallocated();
                                 void* pointer = Allocate(100);
                                 Free(Allocate(200));
                                 late_allocated = ReadThreadAllocated() - allocated;
                                 late_deallocated = ReadThreadDeallocated() - deallocated;
                                 Free(pointer);
                                 done = true;
                               }),
            0);
  OnThread([] {
    Free(Allocate(10));
    pthread_setspecific(key, &key);
  });
  // The allocator's own key is older, so that in each round its destructor runs first.
  ASSERT_TRUE(done);
  EXPECT_EQ(late_allocated, 112 + 224);
  EXPECT_EQ(late_deallocated, 224);
}

TEST(ThreadCounters, TheChildOfAForkKeepsThem) {
  OnThread([] {
    Account account;
    void* pointer = account.Make(1000);
    account.ExpectExact();
    pid_t child = fork();
    if (child == 0) {
      Account before = account;
      bool same = ReadThreadAllocated() == before.allocated && ReadThreadDeallocated() == before.deallocated;
      Free(pointer);
      same = same && ReadThreadDeallocated() == before.deallocated + 1024;
      _exit(same ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    account.Discard(pointer);
  });
}

// In the child, the heaps of threads that are no more are adopted as they were left: with ready blocks, and frees that
// nobody has counted.
TEST(ThreadCounters, OrphansOfAForkBeginAtNothing) {
  std::atomic<int> step = 0;
  std::thread other([&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 100; i++) blocks.push_back(Allocate(48));
    for (int i = 0; i < 50; i++) Free(blocks[static_cast<size_t>(i)]);
    step = 1;
    step.notify_all();
    step.wait(1);
    for (int i = 50; i < 100; i++) Free(blocks[static_cast<size_t>(i)]);
  });
  step.wait(0);
  pid_t child = fork();
  if (child == 0) {
    bool exact = true;
    // More threads than heaps were parked before: one of them gets the orphan.
    std::vector<std::thread> threads;
    std::atomic<int> running = 0;
    for (int i = 0; i < 16; i++) {
      threads.emplace_back([&] {
        Free(Allocate(48));
        if (ReadThreadAllocated() != 48 || ReadThreadDeallocated() != 48) exact = false;
        running++;
        while (running < 16) std::this_thread::yield();
      });
    }
    for (std::thread& thread : threads) thread.join();
    _exit(exact ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  step = 2;
  step.notify_all();
  other.join();
}

TEST(ThreadPeak, IsTheLargestSinceTheReset) {
  OnThread([] {
    constexpr size_t kLarge = 10 << 20;
    constexpr uint64_t kMargin = 100 * 1000;  // jemalloc's promise
    void* kept = Allocate(1 << 20);
    ResetThreadPeak();
    EXPECT_EQ(ReadThreadPeak(), 0);
    Free(Allocate(kLarge));
    EXPECT_NEAR(static_cast<double>(ReadThreadPeak()), kLarge, kMargin);
    // Many small blocks, which are freed one by one, do not add up.
    std::vector<void*> blocks;
    for (int round = 0; round < 20; round++) {
      for (int i = 0; i < 10000; i++) blocks.push_back(Allocate(160));
      for (void* pointer : blocks) Free(pointer);
      blocks.clear();
    }
    EXPECT_NEAR(static_cast<double>(ReadThreadPeak()), kLarge, kMargin);
    ResetThreadPeak();
    EXPECT_EQ(ReadThreadPeak(), 0);
    for (int i = 0; i < 10000; i++) blocks.push_back(Allocate(160));
    for (void* pointer : blocks) Free(pointer);
    EXPECT_NEAR(static_cast<double>(ReadThreadPeak()), 1600000, kMargin);
    Free(kept);
    EXPECT_NEAR(static_cast<double>(ReadThreadPeak()), 1600000, kMargin);
  });
}

// Slabs with a few live blocks each, whose other frees nobody has counted, are looked at before a peak is believed.
TEST(ThreadPeak, UncountedFreesAreNoPeak) {
  OnThread([] {
    constexpr size_t kBlocks = 100000;
    std::vector<void*> blocks(kBlocks);
    for (void*& pointer : blocks) pointer = Allocate(160);
    ResetThreadPeak();
    for (size_t i = 0; i < kBlocks; i++) {
      if (i % 100 != 0) Free(blocks[i]);
    }
    Free(Allocate(10 << 20));
    EXPECT_LE(ReadThreadPeak(), 100 * 1000);
    for (size_t i = 0; i < kBlocks; i += 100) Free(blocks[i]);
  });
}

}  // namespace
}  // namespace heaptap
