// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "allocate.h"
#include "recorder.h"
#include "statistics.h"
#include "thread.h"

namespace heaptap {
namespace {

using testing::ReadBooks;
using testing::SamplingOn;

TEST(RemoteFree, BringsFullSlabsBack) {
  constexpr size_t kSize = 1024;
  constexpr size_t kBlocks = 64 * 100;
  std::vector<void*> first(kBlocks);
  for (void*& pointer : first) pointer = Allocate(kSize);
  std::thread([&] {
    for (void* pointer : first) Free(pointer);
  }).join();
  // The owner gets the same memory again.
  std::vector<void*> second(kBlocks);
  for (void*& pointer : second) pointer = Allocate(kSize);
  std::sort(first.begin(), first.end());
  size_t reused = 0;
  for (void* pointer : second) reused += std::binary_search(first.begin(), first.end(), pointer);
  EXPECT_GE(reused, kBlocks * 9 / 10);
  for (void* pointer : second) Free(pointer);
}

// Owner and another thread free blocks of the same slabs at the same time, which are full most of the time.
TEST(RemoteFree, RacesWithTheOwner) {
  constexpr size_t kSize = 2048;
  constexpr int kRounds = 3000;
  constexpr size_t kBlocks = 32 * 4;
  std::vector<void*> mine(kBlocks / 2);
  std::vector<void*> others(kBlocks / 2);
  std::atomic<int> round = 0;
  std::atomic<int> done = 0;
  std::thread other([&] {
    for (int i = 1; i <= kRounds; i++) {
      while (round.load(std::memory_order_acquire) < i) std::this_thread::yield();
      for (void* pointer : others) Free(pointer);
      done.store(i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kRounds; i++) {
    for (size_t j = 0; j < kBlocks / 2; j++) {
      mine[j] = Allocate(kSize);
      others[j] = Allocate(kSize);
      memset(mine[j], i, kSize);
      memset(others[j], i, kSize);
    }
    round.store(i, std::memory_order_release);
    for (void* pointer : mine) Free(pointer);
    while (done.load(std::memory_order_acquire) < i) std::this_thread::yield();
  }
  other.join();
  // Nothing was lost: what is in use now fits in few slabs.
  uint64_t before = 0;
  for (void*& pointer : mine) {
    pointer = Allocate(kSize);
    before++;
  }
  for (void* pointer : mine) Free(pointer);
  EXPECT_EQ(before, kBlocks / 2);
}

TEST(ThreadExit, HeapsAreAdopted) {
  std::vector<Heap*> heaps;
  for (int i = 0; i < 50; i++) {
    std::thread([&] {
      Free(Allocate(100));
      heaps.push_back(current_heap);
    }).join();
  }
  std::sort(heaps.begin(), heaps.end());
  EXPECT_LE(std::unique(heaps.begin(), heaps.end()) - heaps.begin(), 2);
}

TEST(ThreadExit, BlocksOutliveTheirThread) {
  std::vector<void*> blocks(10000);
  std::thread([&] {
    for (void*& pointer : blocks) {
      pointer = Allocate(500);
      memset(pointer, 0x42, 500);
    }
  }).join();
  for (void* pointer : blocks) {
    EXPECT_EQ(static_cast<char*>(pointer)[499], 0x42);
    Free(pointer);
  }
}

TEST(ThreadExit, SampledBlocksOutliveTheirThread) {
  SamplingOn on(0);
  uint64_t live = ReadBooks().live;
  std::vector<void*> blocks(1000);
  std::thread([&] {
    for (int i = 0; i < 1000; i++) Free(Allocate(500));
    for (void*& pointer : blocks) pointer = Allocate(500);
  }).join();
  EXPECT_EQ(ReadBooks().live, live + blocks.size());
  for (void* pointer : blocks) Free(pointer);
  EXPECT_EQ(ReadBooks().live, live);
  EXPECT_EQ(ReadBooks().errors, 0u);
}

#ifndef __SANITIZE_THREAD__  // it is gone in the last round of destructors, and after a fork with threads
// Destructors of other keys allocate and free in every round, and after the heap is gone.
TEST(ThreadExit, LateAllocations) {
  struct Key {
    pthread_key_t key;
    std::atomic<int> calls = 0;
    std::atomic<int> late = 0;
  };
  static Key before;
  static Key after;
  auto destructor = [](Key& key, void* argument) {
    key.calls++;
    if (current_heap == &empty_heap) key.late++;
    Free(argument);
    void* pointer = Reallocate(AllocateZeroed(1, 300), 30000);
    for (int i = 0; i < 100; i++) Free(Allocate(static_cast<size_t>(i) * 100));
    pthread_setspecific(key.key, pointer);
  };
  // One key on either side of the allocator's own could only be made by the allocator's order of creation; the last
  // round is what counts: one of these two runs after the heap was parked.
  static auto run = destructor;
  pthread_key_create(&before.key, [](void* argument) { run(before, argument); });
  pthread_key_create(&after.key, [](void* argument) { run(after, argument); });
  for (int i = 0; i < 20; i++) {
    std::thread([&] {
      pthread_setspecific(before.key, Allocate(10));
      pthread_setspecific(after.key, Allocate(20));
    }).join();
  }
  EXPECT_GE(before.calls, 20);
  EXPECT_GE(after.late + before.late, 20);
  pthread_key_delete(before.key);
  pthread_key_delete(after.key);
}

TEST(Fork, WhileOtherThreadsAllocate) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++) {
    threads.emplace_back([&stop, i] {
      std::vector<void*> live(100);
      for (size_t n = 0; !stop; n++) {
        void*& slot = live[n * 7 % live.size()];
        Free(slot);
        slot = Allocate((n * 131 + static_cast<size_t>(i)) % 50000);
      }
      for (void* pointer : live) Free(pointer);
    });
  }
  SamplingOn on(16);
  for (int i = 0; i < 60; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      // The recorder's mutex may be held by a thread that is no more; the child does without sampling.
      ::heaptap_control.active = 0;
      alarm(20);
      std::vector<void*> live(1000);
      for (size_t n = 0; n < 20000; n++) {
        void*& slot = live[n * 7 % live.size()];
        Free(slot);
        slot = Allocate(n % 3000);
        memset(slot, 1, n % 3000);
      }
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}
#endif

}  // namespace
}  // namespace heaptap
