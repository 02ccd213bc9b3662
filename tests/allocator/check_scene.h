// SPDX-License-Identifier: Apache-2.0
//
// A scene with one of everything that a check looks at, and mutations of it, each of which breaks one equation.
#ifndef HEAPTAP_TESTS_ALLOCATOR_CHECK_SCENE_H_
#define HEAPTAP_TESTS_ALLOCATOR_CHECK_SCENE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/check.h"
#include "allocator/core/decay.h"
#include "own_heap.h"
#include "recorder.h"

namespace heaptap::testing {

inline constexpr size_t kSize = 1792;  // no other test uses many of these
inline constexpr size_t kFreshSize = 224;
inline constexpr unsigned kClass = ClassOf(kSize);
inline constexpr unsigned kFreshClass = ClassOf(kFreshSize);

inline uintptr_t OwnerOf(const Slab* slab) { return slab->owner.load(); }

inline uintptr_t Word(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// One of everything that can be broken; all of it sound, and in the calling thread's heap.
struct Scene {
  Heap* heap = nullptr;
  std::vector<void*> blocks = {};  // of kSize, live
  Slab* full = nullptr;            // it has the notify bit
  Slab* partly = nullptr;          // it has 20 local free blocks
  void* live = nullptr;            // a block of `partly`
  Slab* sampled = nullptr;         // it has live and free blocks
  Slab* run = nullptr;             // of four units
  Chunk* chunk = nullptr;          // one of several with free units

  Slab* TakeFull() {
    for (void* block : blocks) {
      Slab* slab = SlabOf(block, kShortShift);
      if (OwnerOf(slab) == (Word(heap) | kFullBit)) return slab;
    }
    abort();
  }
  // Frees blocks of the slab, and forgets them.
  void FreeSome(const Slab* slab, size_t count) {
    std::erase_if(blocks, [&](void* block) {
      if (SlabOf(block, kShortShift) != slab || count == 0) return false;
      count--;
      Free(block);
      return true;
    });
  }

  void MakeSampled() {
    SamplingOn on(0);
    void* first = Allocate(kSize);
    void* second = Allocate(kSize);
    sampled = SlabOf(first, kShortShift);
    if (OwnerOf(sampled) != kSampledOwner || SlabOf(second, kShortShift) != sampled) abort();
    Free(second);
    Trim();  // the heap follows the rate at its next slow path
  }
  void MakeChunks() {
    SetDirtyDecay(-1);  // what is freed stays dirty
    std::vector<void*> runs(200);
    for (void*& pointer : runs) pointer = Allocate(size_t{1} << 20);
    for (size_t i = 0; i < runs.size(); i += 2) Free(runs[i]);
    chunk = ChunkOf(SlabOf(runs[1], kShortShift));
    run = SlabOf(Allocate(200000), kShortShift);
  }

  Scene() {
    MakeSampled();
    MakeChunks();
    for (size_t i = 0; i < 8 * kSlabCapacity[kClass]; i++) blocks.push_back(Allocate(kSize));
    heap = current_heap;
    FreeSome(TakeFull(), SIZE_MAX);  // the empty slab
    // Blocks on the ready list.
    FreeSome(TakeFull(), 20);
    while (heap->ready[kClass] == nullptr) blocks.push_back(Allocate(kSize));
    full = TakeFull();
    std::erase_if(blocks, [&](void* block) { return SlabOf(block, kShortShift) == full; });
    partly = TakeFull();
    FreeSome(partly, 20);
    std::erase_if(blocks, [&](void* block) {
      if (live != nullptr || SlabOf(block, kShortShift) != partly) return false;
      live = block;
      return true;
    });
    while (heap->fresh[kFreshClass] == heap->fresh_end[kFreshClass]) Allocate(kFreshSize);
  }

  // As if another thread had freed it.
  void FreeRemotely(Block* block) {
    block->next = nullptr;
    partly->remote_free.store(RemoteWord(block, 1));
  }
  // As if another thread had freed a block of the full slab.
  void Wake() {
    full->remote_free.store(RemoteWord(reinterpret_cast<Block*>(SlabMemory(full)), 1));
    *reinterpret_cast<Block**>(SlabMemory(full)) = nullptr;
    full->wake_next = nullptr;
    heap->wakes.store(full);
  }
};

inline void CheckAll(const Scene& scene) {
  CheckHeapAndUnits(scene.heap);
  CheckSlab(scene.full);
  CheckAllHeaps();
}

struct Mutation {
  const char* name;
  const char* equation;
  void (*apply)(Scene& scene);
};

inline void PrintTo(const Mutation& mutation, std::ostream* stream) { *stream << mutation.name; }

// A string as a regular expression of POSIX.
inline std::string Quoted(const std::string& text) {
  std::string quoted;
  for (char c : text) {
    if (std::string("|*+?()[]{}^$.\\").find(c) != std::string::npos) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

inline std::string LineOf(const char* equation) {
  return "^<heaptap>: check failed at 0x[0-9a-f]{16}: " + Quoted(equation) + " \\([0-9]+, [0-9]+\\)\n$";
}

// The process ends with the line of the mutation's equation.
inline void ExpectCaught(const Mutation& mutation) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(
      {
        Scene scene;
        CheckAll(scene);
        mutation.apply(scene);
        CheckAll(scene);
      },
      LineOf(mutation.equation));
}

inline std::string NameOf(const ::testing::TestParamInfo<Mutation>& info) { return info.param.name; }

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_CHECK_SCENE_H_
