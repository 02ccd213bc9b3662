// SPDX-License-Identifier: Apache-2.0
//
// The equations of slab.h after every step of random sequences, against a model that knows which blocks are live.
#include "allocator/core/slab.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/thread.h"
#include "allocator/platform/random.h"
#include "recorder.h"

namespace heaptap {
namespace {

class SlabModel {
 public:
  explicit SlabModel(unsigned size_class) : size_class_(size_class) {}

  void Make() {
    void* pointer = Allocate(kClassSize[size_class_]);
    ASSERT_NE(pointer, nullptr);
    ASSERT_TRUE(live_.insert(pointer).second) << "live already";
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

  size_t live() const { return live_.size(); }

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
    for (auto at = live_.lower_bound(const_cast<char*>(memory)); at != live_.end() && *at < end; ++at, live++) {
      blocks.insert(*at);
    }
    ASSERT_EQ(blocks.size(), count + live) << "a block is in two states";
    ASSERT_EQ(slab->carved, ready.size() + live + local + remote);
    ASSERT_EQ(slab->used, ready.size() + live + remote);
    ASSERT_LE(slab->carved, slab->capacity);
    for (const void* block : blocks) {
      const auto offset = static_cast<const char*>(block) - memory;
      ASSERT_TRUE(offset >= 0 && block < end && static_cast<size_t>(offset) % slab->size == 0) << offset;
    }
  }

  void* Take(Random* random) {
    // Whose address is the next behind a live one's, or the first.
    auto at = live_.lower_bound(static_cast<char*>(*live_.begin()) + random->Next() % (size_t{1} << 22));
    if (at == live_.end()) at = live_.begin();
    void* pointer = *at;
    live_.erase(at);
    return pointer;
  }

  unsigned size_class_;
  std::set<void*> live_;
  std::set<const Slab*> slabs_;
};

class SlabTest : public ::testing::TestWithParam<size_t> {};

TEST_P(SlabTest, EquationsHold) {
  for (uint32_t lg : {63u, 14u}) {
    testing::SamplingOn on(lg);
    SlabModel model(ClassOf(GetParam()));
    Random random;
    random.Seed(GetParam(), lg);
    const size_t most = 4 * kSlabCapacity[ClassOf(GetParam())];
    for (int step = 0; step < 3000; step++) {
      const uint64_t kind = random.Next() % 100;
      // It grows and shrinks by turns.
      const bool grows = step / 500 % 2 == 0 && model.live() < most;
      if (model.live() == 0 || kind < (grows ? 70 : 30)) {
        model.Make();
      } else if (kind < 99) {
        model.FreeOne(&random);
      } else {
        model.FreeSomeRemotely(&random, 1 + random.Next() % (most / 2));
      }
      model.Check();
      if (HasFatalFailure()) return;
    }
    while (model.live() > 0) model.FreeOne(&random);
    model.Check();
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SlabTest, ::testing::Values(512, 2048, 4096, 32768));

}  // namespace
}  // namespace heaptap
