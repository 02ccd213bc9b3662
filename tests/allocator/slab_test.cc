// SPDX-License-Identifier: Apache-2.0
//
// The equations of slab.h after every step of random sequences, against a model that knows which blocks are live.
#include "allocator/core/slab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/decay.h"
#include "allocator/core/thread.h"
#include "allocator/platform/random.h"
#include "recorder.h"
#include "settable_clock.h"

namespace heaptap {
namespace {

constexpr ssize_t kDecay = 1000;  // milliseconds, as in a new process: other tests may leave another one

class SlabModel {
 public:
  explicit SlabModel(unsigned size_class) : size_class_(size_class) {}

  void Make() {
    void* pointer = Allocate(kClassSize[size_class_]);
    ASSERT_NE(pointer, nullptr);
    ASSERT_TRUE(addresses_.insert(pointer).second) << "live already";
    live_.push_back(pointer);
    slabs_.insert(SlabOf(pointer, ChunkKind(pointer)));
  }
  void FreeOne(Random* random) { Free(Take(random)); }
  void FreeSomeRemotely(Random* random, size_t count) {
    std::vector<void*> some;
    while (some.size() < count && !live_.empty()) some.push_back(Take(random));
    std::thread([&some] {
      for (void* pointer : some) Free(pointer);
    }).join();
  }
  static void ReturnPages() {
    HeapScope heap;
    heap->ReturnAllFreePages();
  }

  size_t live() const { return live_.size(); }
  // The most returned blocks that one slab had.
  size_t most_returned() const { return most_returned_; }

  // The equations hold for each slab that still has blocks of the class.
  void Check() {
    std::map<const Slab*, std::set<const void*>> ready;
    for (const Block* list : {current_heap->ready[size_class_], current_heap->classes[size_class_].rest.first}) {
      for (; list != nullptr; list = list->next) ready[SlabOf(list, ChunkKind(list))].insert(list);
    }
    const char* fresh = current_heap->fresh[size_class_];
    for (; fresh != current_heap->fresh_end[size_class_]; fresh += kClassSize[size_class_]) {
      ready[SlabOf(fresh, ChunkKind(fresh))].insert(fresh);
    }
    ASSERT_LE(ready.size(), 1u) << "all ready blocks come from one slab";
    std::erase_if(slabs_, [this](const Slab* slab) { return !IsOurs(slab); });
    for (const Slab* slab : slabs_) CheckSlab(slab, ready[slab]);
  }

 private:
  bool IsOurs(const Slab* slab) const {
    const uintptr_t owner = slab->owner.load();
    return (owner & ~(kFullBit | kSlowBit)) == reinterpret_cast<uintptr_t>(current_heap) &&
           slab->size_class == size_class_;
  }

  void CheckSlab(const Slab* slab, const std::set<const void*>& ready) {
    // Every block that is in some state; none is in two.
    std::set<const void*> blocks = ready;
    size_t count = ready.size();
    auto add = [&](const Block* list) {
      size_t length = 0;
      for (; list != nullptr; list = list->next, length++) blocks.insert(list);
      count += length;
      return length;
    };
    const size_t local = add(slab->local_free);
    const size_t remote = add(RemoteBlocks(slab->remote_free));
    const char* memory = SlabMemory(slab);
    const char* end = memory + slab->carved * slab->size;
    size_t live = 0;
    for (auto at = addresses_.lower_bound(memory); at != addresses_.end() && *at < end; ++at, live++) {
      blocks.insert(*at);
    }
    const size_t returned = AddReturned(slab, &blocks);
    ASSERT_EQ(blocks.size(), count + live + returned) << "a block is in two states";
    ASSERT_EQ(slab->returned, returned);
    most_returned_ = std::max(most_returned_, returned);
    ASSERT_EQ(slab->carved, ready.size() + live + local + remote + returned);
    ASSERT_EQ(slab->used, ready.size() + live + remote + returned);
    ASSERT_LE(slab->carved, slab->capacity);
    for (const void* block : blocks) {
      const auto offset = static_cast<const char*>(block) - memory;
      ASSERT_TRUE(offset >= 0 && block < end && static_cast<size_t>(offset) % slab->size == 0) << offset;
    }
  }

  // Adds the blocks that touch a page of `returned_pages`. Returns how many there are.
  static size_t AddReturned(const Slab* slab, std::set<const void*>* blocks) {
    const char* memory = SlabMemory(slab);
    size_t returned = 0;
    for (size_t index = 0; index < slab->carved; index++) {
      const size_t begin = index * slab->size;
      bool is_returned = false;
      for (size_t page = begin / kPageSize; page * kPageSize < begin + slab->size; page++) {
        is_returned |= (slab->returned_pages[page / 64] >> page % 64 & 1) != 0;
      }
      if (!is_returned) continue;
      blocks->insert(memory + begin);
      returned++;
    }
    return returned;
  }

  // Picked by the order of allocation and not by address, so that a seed makes the same sequence in each process.
  void* Take(Random* random) {
    std::swap(live_[random->Next() % live_.size()], live_.back());
    void* pointer = live_.back();
    live_.pop_back();
    addresses_.erase(pointer);
    return pointer;
  }

  unsigned size_class_;
  std::vector<void*> live_;
  std::set<const void*> addresses_;  // of live_
  size_t most_returned_ = 0;
  std::set<const Slab*> slabs_;
};

class SlabTest : public ::testing::TestWithParam<size_t> {};

TEST_P(SlabTest, EquationsHold) {
  SetDirtyDecay(kDecay);
  // What goes back by its age depends on the step, not on the machine.
  testing::SettableClock clock;
  for (uint32_t lg : {63u, 14u}) {
    testing::SamplingOn on(lg);
    SlabModel model(ClassOf(GetParam()));
    Random random;
    random.Seed(GetParam(), lg);
    const size_t most = 4 * kSlabCapacity[ClassOf(GetParam())];
    for (int step = 0; step < 3000; step++) {
      clock.Advance(1);
      const uint64_t kind = random.Next() % 100;
      // It grows and shrinks by turns.
      const bool grows = step / 500 % 2 == 0 && model.live() < most;
      if (model.live() == 0 || kind < (grows ? 70 : 30)) {
        model.Make();
      } else if (kind < 98) {
        model.FreeOne(&random);
      } else if (kind < 99) {
        model.ReturnPages();
      } else {
        model.FreeSomeRemotely(&random, 1 + random.Next() % (most / 2));
      }
      model.Check();
      if (HasFatalFailure()) return;
    }
    while (model.live() > 0) model.FreeOne(&random);
    model.Check();
    EXPECT_GT(model.most_returned(), 0u) << "the equations were not checked with returned blocks";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SlabTest, ::testing::Values(512, 2048, 4096, 32768));

}  // namespace
}  // namespace heaptap
