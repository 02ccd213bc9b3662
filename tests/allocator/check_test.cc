// SPDX-License-Identifier: Apache-2.0
//
// Each equation of check.h, broken by hand in memory, ends the process with its line; a healthy allocator passes.
#include "allocator/core/check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/platform/random.h"
#include "allocator/process/options.h"
#include "check_scene.h"
#include "own_heap.h"
#include "recorder.h"

namespace heaptap {
namespace {

using testing::ExpectCaught;
using testing::kClass;
using testing::kFreshClass;
using testing::kFreshSize;
using testing::kSize;
using testing::LineOf;
using testing::Mutation;
using testing::OwnerOf;
using testing::Scene;
using testing::Word;

class CheckDeathTest : public ::testing::TestWithParam<Mutation> {};

TEST_P(CheckDeathTest, CatchesIt) { ExpectCaught(GetParam()); }

Heap* ParkedHeap() {
  std::thread([] { Free(Allocate(100)); }).join();
  Heap* found = nullptr;
  auto visit = [](void* opaque, const Heap* heap) {
    if (heap->state == HeapState::kParked) *static_cast<const Heap**>(opaque) = heap;
  };
  VisitHeaps(visit, &found);
  return found;
}

const Mutation kSlabMutations[] = {
    {"SizeClass", "size_class < kSmallClasses",
     [](Scene& scene) {
       scene.full->size_class = kSmallClasses;
       CheckSlab(scene.full);
     }},
    {"Shift", "the class's units, or short ones",
     [](Scene& scene) {
       chunk_table[TableIndex(scene.full)] = kLongShift;
       CheckSlab(scene.full);
     }},
    {"Size", "size == kClassSize[size_class]", [](Scene& scene) { scene.partly->size += 16; }},
    {"Capacity", "capacity == bytes / size", [](Scene& scene) { scene.partly->capacity--; }},
    {"SampledCapacity", "capacity <= bytes / size",
     [](Scene& scene) { scene.sampled->capacity = kSlabCapacity[kClass] + 1; }},
    {"Units", "units of a slab == 1",
     [](Scene& scene) {
       scene.full->units = 2;
       CheckSlab(scene.full);
     }},
    {"Carved", "carved <= capacity", [](Scene& scene) { scene.partly->carved = scene.partly->capacity + 1; }},
    {"Used", "used <= carved", [](Scene& scene) { scene.partly->used = scene.partly->carved + 1; }},
    {"UsedCount", "|local_free| == carved - used", [](Scene& scene) { scene.partly->used--; }},
    {"ListTooShort", "|local_free| == carved - used",
     [](Scene& scene) { scene.partly->local_free = scene.partly->local_free->next; }},
    {"SampledCount", "|local_free| == carved - used", [](Scene& scene) { scene.sampled->used++; }},
    {"Outside", "a free block lies among the carved: offset < carved * size",
     [](Scene& scene) { scene.partly->local_free->next = reinterpret_cast<Block*>(SlabMemory(scene.partly) - kSize); }},
    {"Uncarved", "a free block lies among the carved: offset < carved * size",
     [](Scene& scene) {
       scene.partly->local_free->next = reinterpret_cast<Block*>(SlabMemory(scene.partly) + size_t{36} * kSize);
     }},
    {"Misaligned", "a free block is aligned: offset % size == 0",
     [](Scene& scene) {
       Block* first = scene.partly->local_free;
       first->next = reinterpret_cast<Block*>(reinterpret_cast<char*>(first->next) + 16);
     }},
    {"TwiceFreed", "a free block is in one state, and once on its list",
     [](Scene& scene) { scene.partly->local_free->next->next = scene.partly->local_free; }},
    {"LocallyAndRemotely", "a free block is in one state, and once on its list",
     [](Scene& scene) { scene.partly->remote_free.store(RemoteWord(scene.partly->local_free, 1)); }},
    {"RemoteTwice", "a free block is in one state, and once on its list",
     [](Scene& scene) {
       scene.FreeRemotely(static_cast<Block*>(scene.live));
       static_cast<Block*>(scene.live)->next = static_cast<Block*>(scene.live);
     }},
    {"RemoteCount", "|remote_free| == its count",
     [](Scene& scene) {
       scene.FreeRemotely(static_cast<Block*>(scene.live));
       scene.partly->remote_free.store(RemoteWord(static_cast<Block*>(scene.live), 2));
     }},
    {"ReadyTwice", "a free block is in one state, and once on its list",
     [](Scene& scene) { scene.heap->ready[kClass]->next = scene.heap->ready[kClass]; }},
    {"Ready", "ready + |remote_free| + returned <= used",
     [](Scene& scene) {
       // Follows from the other equations, unless |local_free| may be one off.
       check_slack = 1;
       scene.FreeSome(scene.partly, scene.partly->used - 1);
       scene.FreeRemotely(reinterpret_cast<Block*>(scene.live));
       scene.partly->used = 0;
     }},
    {"FreshEnd", "fresh_end == memory + carved * size",
     [](Scene& scene) { scene.heap->fresh_end[kFreshClass] += kFreshSize; }},
    {"SlowBit", "owner & kSlowBit == core_options.owner_bits",
     [](Scene& scene) {
       scene.full->owner.store(OwnerOf(scene.full) | kSlowBit);
       CheckSlab(scene.full);
     }},
    {"NotQueued", "queued == not full", [](Scene& scene) { scene.partly->queued = false; }},
    {"FullAndQueued", "queued == not full", [](Scene& scene) { scene.full->queued = true; }},
    {"SampledNotQueued", "of sampled blocks: queued == (used < capacity)",
     [](Scene& scene) { scene.sampled->queued = false; }},
    {"SampledRemote", "of sampled blocks: remote_free == 0",
     [](Scene& scene) { scene.sampled->remote_free.store(kNotifyBit); }},
    {"FullOfLess", "of a full slab: used == capacity", [](Scene& scene) { scene.full->used--; }},
    {"Settled", "used <= used_settled", [](Scene& scene) { scene.partly->used_settled = scene.partly->used - 1; }},
    {"SettledCarved", "used_settled <= carved",
     [](Scene& scene) { scene.partly->used_settled = scene.partly->carved + 1; }},
    {"NotifyFull", "kNotifyBit => full", [](Scene& scene) { scene.partly->remote_free.store(kNotifyBit); }},
    {"NotifyWake", "kNotifyBit => no wake is on its way", [](Scene& scene) { scene.full->wake_pending = true; }},
    {"NotifyBlock", "kNotifyBit => no block is remotely freed",
     [](Scene& scene) { scene.full->remote_free.store(Word(SlabMemory(scene.full)) | kNotifyBit); }},
};

const Mutation kHeapMutations[] = {
    {"QueueOfOthers", "a slab on the queue is one, with the class's units or short ones",
     [](Scene& scene) { scene.partly->next = reinterpret_cast<Slab*>(scene.heap); }},
    {"QueueMisaligned", "a slab on the queue is one: address % sizeof(Slab) == 0",
     [](Scene& scene) {
       scene.heap->classes[kClass].queue.first()->next = reinterpret_cast<Slab*>(Word(scene.partly) + 8);
     }},
    {"Links", "next->previous == this", [](Scene& scene) { scene.partly->previous = scene.partly; }},
    {"QueueCircle", "next->previous == this",
     [](Scene& scene) { scene.heap->classes[kClass].queue.last()->next = scene.heap->classes[kClass].queue.last(); }},
    {"QueueCut", "last slab of a queue == last()",
     [](Scene& scene) { scene.heap->classes[kClass].queue.last()->previous->next = nullptr; }},
    {"ClassOfQueue", "size_class == class of the queue", [](Scene& scene) { scene.partly->size_class--; }},
    {"OwnerOfQueue", "owner of a queued slab == owner of the queue",
     [](Scene& scene) { scene.partly->owner.store(kSampledOwner); }},
    {"ReadyAndFresh", "blocks on the ready list => no fresh block",
     [](Scene& scene) { scene.heap->fresh[kClass] = scene.heap->fresh_end[kClass] - kSize; }},
    {"RestAndFresh", "blocks in a rest => no fresh block",
     [](Scene& scene) {
       scene.heap->classes[kFreshClass].rest.first = reinterpret_cast<Block*>(SlabMemory(scene.full));
     }},
    {"RestLength", "|rest| == its length", [](Scene& scene) { scene.heap->classes[kClass].rest.length++; }},
    {"Fresh", "fresh <= fresh_end",
     [](Scene& scene) { scene.heap->fresh[kFreshClass] = scene.heap->fresh_end[kFreshClass] + kFreshSize; }},
    {"ReadyOfNobody", "the slab of the ready blocks is on the queue",
     [](Scene& scene) {
       static_cast<Block*>(static_cast<void*>(SlabMemory(scene.full)))->next = nullptr;
       scene.heap->ready[kClass] = reinterpret_cast<Block*>(SlabMemory(scene.full));
     }},
    {"Batch", "ready <= batch", [](Scene& scene) { scene.heap->classes[kClass].batch = 0; }},
    {"Counts", "ready + taken_back <= handed_out",
     [](Scene& scene) {
       scene.heap->classes[kClass].counts.taken_back.Add(scene.heap->classes[kClass].counts.handed_out.Read());
     }},
    {"Countdown", "1 <= countdown <= kNever: allowance < kNever",
     [](Scene& scene) {
       Countdown& countdown = scene.heap->countdown();
       countdown.TakeBack(kClass, Countdown::kNever);
     }},
    {"EmptyNotQueued", "the empty slab of the class is on the queue",
     [](Scene& scene) { scene.heap->classes[kClass].empty = scene.full; }},
    {"EmptyUsed", "of the empty slab: used == 0",
     [](Scene& scene) { scene.heap->classes[kClass].empty = scene.partly; }},
    {"WakeOfNoSlab", "a slab on the list of wakes is one",
     [](Scene& scene) { scene.heap->wakes.store(reinterpret_cast<Slab*>(scene.heap)); }},
    {"WakeOfAnother", "a slab on the list of wakes is the heap's: owner == heap",
     [](Scene& scene) {
       scene.Wake();
       scene.heap->wakes.store(scene.run);
     }},
    {"WakeOfNotFull", "a wake on its way => full or wake_pending",
     [](Scene& scene) { scene.heap->wakes.store(scene.partly); }},
    {"WakeTwice", "a slab is on the list of wakes once",
     [](Scene& scene) {
       scene.Wake();
       scene.full->wake_next = scene.full;
     }},
    {"SlabLost", "queued slabs == slabs of the heap that are not full",
     [](Scene& scene) { scene.heap->classes[kClass].queue.Remove(scene.partly); }},
    {"HeapsCircle", "a heap is on the list of all once", [](Scene& scene) { scene.heap->next = scene.heap; }},
    {"HeapsCut", "heaps on the list of all == heaps made",
     [](Scene& scene) {
       for (Heap* heap = scene.heap->next; heap != nullptr; heap = heap->next) heap->next = nullptr;
       ParkedHeap()->next = nullptr;
     }},
    {"ParkedState", "a heap on the list of parked ones: state == kParked",
     [](Scene&) { ParkedHeap()->state = HeapState::kOwned; }},
    {"ParkedTwice", "a heap is on the list of parked ones once",
     [](Scene&) {
       Heap* heap = ParkedHeap();
       heap->next_parked = heap;
     }},
    {"ParkedCounters", "a parked heap has no counters", [](Scene&) { ParkedHeap()->counters = &thread_counters; }},
    {"ParkedLost", "heaps on the list of parked ones == parked heaps",
     [](Scene& scene) { scene.heap->state = HeapState::kParked; }},
};

INSTANTIATE_TEST_SUITE_P(OfSlabs, CheckDeathTest, ::testing::ValuesIn(kSlabMutations), testing::NameOf);
INSTANTIATE_TEST_SUITE_P(OfHeaps, CheckDeathTest, ::testing::ValuesIn(kHeapMutations), testing::NameOf);

// --- when ------------------------------------------------------------------------------------------------------------

constexpr char kUsed[] = "|local_free| == carved - used";

TEST(CheckWhenDeathTest, SlowPathsCheckNowAndThen) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(
      {
        Scene scene;
        scene.partly->used--;
        for (int i = 0; i < 100000; i++) Free(Allocate(100000));
      },
      LineOf(kUsed));
}

TEST(CheckWhenDeathTest, EachSlowPathChecksIfThatIsWanted) {
  const char* before = getenv("MALLOC_CONF");
  const std::string kept = before != nullptr ? before : "";
  setenv("MALLOC_CONF", "debug_check:true", 1);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Scene scene;
        scene.partly->used--;
        Allocate(100000);
        _exit(0);
      },
      LineOf(kUsed));
  before != nullptr ? setenv("MALLOC_CONF", kept.c_str(), 1) : unsetenv("MALLOC_CONF");
  const Option* option = FindOption({"debug_check", 11}, kOptions, kOptionCount);
  ASSERT_NE(option, nullptr);
  EXPECT_EQ(option->effective, kDebugBuild);
}

// With other threads: without them the fork may be a signal handler's, which may lock nothing.
TEST(CheckWhenDeathTest, ForkChecks) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(
      {
        Scene scene;
        // More than a signal handler can explain.
        scene.partly->used -= 2;
        std::thread sleeper([] { sleep(10); });
        fork();
        _exit(0);
      },
      LineOf(kUsed));
}

// --- a healthy allocator ---------------------------------------------------------------------------------------------

void Work(uint64_t seed, std::vector<std::atomic<void*>>* shared) {
  Random random;
  random.Seed(seed, 3);
  for (int i = 0; i < 4000; i++) {
    const uint64_t kind = random.Next() % 100;
    const size_t size = kind < 90 ? random.Next() % 4096 : kind < 99 ? random.Next() % 300000 : 20 << 20;
    void* pointer = Allocate(size);
    Free((*shared)[random.Next() % shared->size()].exchange(pointer));
    if (i % 16 == 0) testing::CheckOwnHeap();
    if (i % 1024 == 1023) Trim();
  }
}

TEST(Check, HealthyAfterMixedWork) {
  std::vector<std::atomic<void*>> shared(500);
  for (uint32_t lg : {63u, 10u, 0u}) {
    testing::SamplingOn on(lg);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 3; i++) threads.emplace_back(Work, lg * 10 + i, &shared);
    Work(lg * 10 + 9, &shared);
    for (std::thread& thread : threads) thread.join();
    testing::CheckOwnHeap();
    testing::CheckAllHeaps();
  }
  for (std::atomic<void*>& slot : shared) Free(slot.exchange(nullptr));
  Trim();
  testing::CheckOwnHeap();
  testing::CheckAllHeaps();
}

}  // namespace
}  // namespace heaptap
