// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/slab.h"
#include "allocator/jemalloc/snapshot.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::ReadBooks;
using testing::SamplingOn;

// What there is of a class when no block is ready and what is empty has been released.
ClassStatistics BinOf(size_t size) {
  Trim();
  TakeSnapshot();
  SnapshotScope snapshot;
  return (*snapshot).bins[ClassOf(size)];
}

TEST(RemoteFree, BringsFullSlabsBack) {
  constexpr size_t kSize = 1024;
  const size_t kBlocks = 100 * kSlabCapacity[ClassOf(kSize)];
  const ClassStatistics before = BinOf(kSize);
  std::vector<void*> first(kBlocks);
  for (void*& pointer : first) pointer = Allocate(kSize);
  std::thread([&] {
    for (void* pointer : first) Free(pointer);
  }).join();
  // The owner gets the same memory again, but for the rest of a slab that was begun before.
  std::vector<void*> second(kBlocks);
  for (void*& pointer : second) pointer = Allocate(kSize);
  std::sort(first.begin(), first.end());
  size_t reused = 0;
  for (void* pointer : second) reused += std::binary_search(first.begin(), first.end(), pointer);
  EXPECT_GE(reused, kBlocks - kSlabCapacity[ClassOf(kSize)]);
  for (void* pointer : second) Free(pointer);
  EXPECT_EQ(BinOf(kSize).slabs, before.slabs);
}

// What a block is filled with that is the owner's or the other's in a round: neighbours differ.
unsigned char FillOf(int round, size_t number, bool is_mine) {
  return static_cast<unsigned char>(round * 7 + static_cast<int>(number) * 2 + is_mine);
}

// Owner and another thread free blocks of the same slabs at the same time, which are full most of the time. A block
// that is handed out twice has another's contents; a block that is lost stays live, and a slab that is lost stays in
// use.
// Full slabs, each with all its blocks.
std::vector<std::vector<void*>> FillSlabs(size_t size, size_t count) {
  std::map<Slab*, std::vector<void*>> blocks;
  std::vector<std::vector<void*>> full;
  while (full.size() < count) {
    void* block = Allocate(size);
    Slab* slab = SlabOf(block, ChunkKind(block));
    blocks[slab].push_back(block);
    if (blocks[slab].size() == slab->capacity) full.push_back(blocks[slab]);
  }
  // The last of them leaves the queue at the next refill.
  while ((SlabOf(full.back().front(), ChunkKind(full.back().front()))->owner & kFullBit) == 0) Allocate(size);
  return full;
}

TEST(RemoteFree, ARefillTakesFewOfManyBlocks) {
  std::thread([] {
    constexpr size_t kSize = 96;
    const std::vector<void*> blocks = FillSlabs(kSize, 1).front();
    const Slab* slab = SlabOf(blocks.front(), ChunkKind(blocks.front()));
    std::thread([&] {
      for (size_t i = 1; i < blocks.size(); i++) Free(blocks[i]);  // the slab stays in use
    }).join();
    size_t found = 0;
    for (size_t i = 0; i < 8 * slab->capacity && found < blocks.size() - 1; i++) {
      if (SlabOf(Allocate(kSize), kShortShift) != slab) continue;
      found++;
      size_t ready = 0;
      for (const Block* block = current_heap->ready[ClassOf(kSize)]; block != nullptr; block = block->next) ready++;
      ASSERT_LT(ready, 16u);
    }
    EXPECT_EQ(found, blocks.size() - 1) << "all of them come back";
  }).join();
}

TEST(RemoteFree, ARefillProcessesFewWakes) {
  std::thread([] {
    const std::vector<std::vector<void*>> slabs = FillSlabs(1792, 10);
    Allocate(7168);  // without a slab of the class, a refill would process all
    std::thread([&] {
      for (const std::vector<void*>& blocks : slabs) Free(blocks.front());
    }).join();
    auto full = [&] {
      return std::count_if(slabs.begin(), slabs.end(), [](const std::vector<void*>& blocks) {
        return (SlabOf(blocks.front(), kShortShift)->owner & kFullBit) != 0;
      });
    };
    ASSERT_EQ(full(), 10);
    const unsigned other = ClassOf(7168);
    while (current_heap->TakeReady(other) != nullptr) continue;
    Allocate(7168);
    EXPECT_EQ(full(), 8);
    Trim();
    EXPECT_EQ(full(), 0);
  }).join();
}

TEST(RemoteFree, RacesWithTheOwner) {
  constexpr size_t kSize = 2048;
  constexpr int kRounds = 3000;
  constexpr size_t kSlabs = 4;
  const size_t kHalf = kSlabs * kSlabCapacity[ClassOf(kSize)] / 2;
  const ClassStatistics before = BinOf(kSize);
  std::vector<void*> mine(kHalf);
  std::vector<void*> others(kHalf);
  std::atomic<int> round = 0;
  std::atomic<int> done = 0;
  auto free_all = [&](const std::vector<void*>& blocks, int i, bool is_mine) {
    int changed = 0;
    std::vector<unsigned char> expected(kSize);
    for (size_t j = 0; j < kHalf; j++) {
      memset(expected.data(), FillOf(i, j, is_mine), kSize);
      changed += memcmp(blocks[j], expected.data(), kSize) != 0;
      Free(blocks[j]);
    }
    return changed;
  };
  int changed = 0;
  int others_changed = 0;
  std::thread other([&] {
    for (int i = 1; i <= kRounds; i++) {
      while (round.load(std::memory_order_acquire) < i) std::this_thread::yield();
      others_changed += free_all(others, i, false);
      done.store(i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kRounds; i++) {
    // By turns each has every second block, and each has whole slabs.
    for (size_t j = 0; j < 2 * kHalf; j++) {
      const size_t number = i % 2 == 0 ? j / 2 : j % kHalf;
      const bool is_mine = i % 2 == 0 ? j % 2 == 0 : j < kHalf;
      void*& pointer = (is_mine ? mine : others)[number];
      pointer = Allocate(kSize);
      memset(pointer, FillOf(i, number, is_mine), kSize);
    }
    round.store(i, std::memory_order_release);
    changed += free_all(mine, i, true);
    while (done.load(std::memory_order_acquire) < i) std::this_thread::yield();
  }
  other.join();
  EXPECT_EQ(changed, 0);
  EXPECT_EQ(others_changed, 0);
  const ClassStatistics after = BinOf(kSize);
  EXPECT_EQ(after.live, before.live);
  EXPECT_EQ(after.slabs, before.slabs);
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

// A thread takes the notify bit of a full slab, and the process forks before it has woken the slab's heap.
TEST(Fork, AWakeThatWasNotSent) {
  testing::ExpectInChild([] {
    constexpr size_t kSize = 4096;
    std::atomic<Heap*> other = nullptr;
    std::thread thread([&] {
      Free(Allocate(1));
      other = current_heap;
      pause();
    });
    while (other == nullptr) std::this_thread::yield();
    auto* block = static_cast<Block*>(Allocate(kSize));
    Slab* slab = SlabOf(block, ChunkKind(block));
    while ((slab->owner & kFullBit) == 0) Allocate(kSize);
    if (slab->remote_free != kNotifyBit) return false;
    // As FreeRemotely does it, up to there.
    other.load()->waking = slab;
    block->next = nullptr;
    slab->remote_free = RemoteWord(block, 1);
    const pid_t child = fork();
    if (child == 0) {
      const size_t enough = 4 * kSlabCapacity[ClassOf(kSize)];
      for (size_t i = 0; i < enough; i++) {
        if (Allocate(kSize) == block) _exit(0);
      }
      _exit(1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    _exit(status == 0 ? 0 : 1);  // the other thread still runs
  });
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

}  // namespace
}  // namespace heaptap
