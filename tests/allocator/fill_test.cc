// SPDX-License-Identifier: Apache-2.0
//
// junk, zero, xmalloc and thp. The options hold from the start of a process, so each test runs in one of its own: a
// death test that ends well.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/large.h"
#include "allocator/core/options.h"
#include "allocator/core/units.h"
#include "allocator/platform/random.h"
#include "allocator/process/process.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::ClearBooks;
using testing::ExpectInNewProcess;
using testing::IsBinomial;
using testing::IsFilled;
using testing::kMiB;
using testing::ReadBooks;
using testing::SampleProbability;
using testing::SamplingOn;

constexpr size_t kSizes[] = {1, 8, 9, 100, 1024, 20000, 32768, 32769, 100000, kMiB, 16 * kMiB, 17 * kMiB};

Configuration& Options() { return const_cast<Configuration&>(ProcessConfiguration()); }

#define REQUIRE(condition) \
  if (!(condition)) return std::string(#condition " in line ") + std::to_string(__LINE__)

bool NothingIsReady() {
  for (Block* block : current_heap->ready) {
    if (block != nullptr) return false;
  }
  return true;
}

TEST(Fill, NewMemoryIsJunkAndZeroedMemoryIsNot) {
  ExpectInNewProcess([]() -> std::string {
    Options().junk_alloc = true;
    SetCoreOptions(CoreOptionsOf(Options()));
    for (uint32_t lg : {63u, 0u}) {
      SamplingOn on(lg);
      for (size_t size : kSizes) {
        for (int i = 0; i < 3; i++) {  // untouched, and used before
          void* pointer = Allocate(size);
          REQUIRE(IsFilled(pointer, 0, UsableSize(pointer), kAllocationJunk));
          memset(pointer, 1, UsableSize(pointer));
          void* zeroed = AllocateZeroed(1, size);
          REQUIRE(IsFilled(zeroed, 0, size, 0));
          void* aligned = AllocateExtended(size, {65536, false});
          REQUIRE(IsFilled(aligned, 0, UsableSize(aligned), kAllocationJunk));
          void* zero = AllocateExtended(size, {65536, true});
          REQUIRE(IsFilled(zero, 0, UsableSize(zero), 0));
          for (void* block : {pointer, zeroed, aligned, zero}) Free(block);
        }
      }
      REQUIRE(NothingIsReady());
    }
    return "";
  });
}

TEST(Fill, WhatABlockGrowsByIsJunkUnlessZeroIsAskedFor) {
  ExpectInNewProcess([]() -> std::string {
    Options().junk_alloc = true;
    SetCoreOptions(CoreOptionsOf(Options()));
    for (size_t size : {size_t{100}, size_t{40000}, 20 * kMiB}) {
      for (bool zero : {false, true}) {
        void* pointer = Allocate(size);
        memset(pointer, 0x33, UsableSize(pointer));
        size_t usable = UsableSize(pointer);
        pointer = Reallocate(pointer, 2 * usable, {1, zero});
        // A block that moves keeps what was asked for, and that is all of the old one here.
        REQUIRE(IsFilled(pointer, 0, usable, 0x33));
        REQUIRE(IsFilled(pointer, usable, UsableSize(pointer), zero ? 0 : kAllocationJunk));
        Free(pointer);
      }
    }
    void* pointer = Allocate(kMiB);
    ResizeInPlace(pointer, 65536, 0, {});
    REQUIRE(ResizeInPlace(pointer, kMiB, 0, {}) == kMiB);
    REQUIRE(IsFilled(pointer, 65536, kMiB, kAllocationJunk));
    return "";
  });
}

TEST(Fill, NewMemoryIsZeroAndZeroWinsOverJunk) {
  ExpectInNewProcess([]() -> std::string {
    Options().junk_alloc = true;
    Options().zero = true;
    SetCoreOptions(CoreOptionsOf(Options()));
    for (uint32_t lg : {63u, 0u}) {
      SamplingOn on(lg);
      for (size_t size : kSizes) {
        void* pointer = nullptr;
        for (int i = 0; i < 3; i++) {
          pointer = Allocate(size);
          REQUIRE(IsFilled(pointer, 0, UsableSize(pointer), 0));
          memset(pointer, 1, UsableSize(pointer));
          Free(pointer);
        }
        pointer = Allocate(size);
        size_t usable = UsableSize(pointer);
        memset(pointer, 1, usable);
        pointer = Reallocate(pointer, 2 * usable);
        REQUIRE(IsFilled(pointer, usable, UsableSize(pointer), 0));
        Free(pointer);
      }
    }
    return "";
  });
}

// The first word of a free block is the allocator's. What is huge goes back to the system.
TEST(Fill, FreedMemoryIsJunk) {
  ExpectInNewProcess([]() -> std::string {
    Options().junk_free = true;
    SetCoreOptions(CoreOptionsOf(Options()));
    for (uint32_t lg : {63u, 0u}) {
      SamplingOn on(lg);
      for (size_t size : kSizes) {
        if (size > kRunMaximum) continue;
        for (bool remote : {false, true}) {
          void* neighbour = Allocate(size);  // lest the slab be released
          void* pointer = Allocate(size);
          size_t usable = UsableSize(pointer);
          memset(pointer, 1, usable);
          if (remote) {
            std::thread([&] { Free(pointer); }).join();
          } else {
            Free(pointer);
          }
          REQUIRE(IsFilled(pointer, sizeof(Block), usable, kFreeJunk));
          Free(neighbour);
        }
      }
      REQUIRE(NothingIsReady());
    }
    return "";
  });
}

// Full slabs, frees by other threads, exits of threads: the slabs' invariants are asserted all the while.
TEST(Fill, SlabsGoThroughAllTheirStates) {
  ExpectInNewProcess([]() -> std::string {
    Options().junk_alloc = Options().junk_free = true;
    SetCoreOptions(CoreOptionsOf(Options()));
    SamplingOn on(12);
    auto work = [](uint64_t stream) {
      std::vector<void*> live(3000);
      Random random;
      random.Seed(5, stream);
      for (int i = 0; i < 30000; i++) {
        void*& slot = live[random.Next() % live.size()];
        Free(slot);
        slot = Allocate(random.Next() % 3000);
      }
      return live;
    };
    for (int round = 0; round < 3; round++) {
      std::vector<void*> mine;
      std::vector<void*> others;
      std::thread thread([&] { others = work(2 * round); });
      mine = work(2 * round + 1);
      thread.join();
      std::thread remote([&] {
        for (void* pointer : mine) Free(pointer);
      });
      for (void* pointer : others) Free(pointer);
      remote.join();
    }
    REQUIRE(ReadBooks().live == 0);
    REQUIRE(ReadBooks().errors == 0);
    REQUIRE(ReadBooks().allocs > 1000);
    Trim();
    return "";
  });
}

TEST(Fill, DoesNotChangeTheSamplingLaw) {
  ExpectInNewProcess([]() -> std::string {
    Options().junk_alloc = Options().junk_free = true;
    SetCoreOptions(CoreOptionsOf(Options()));
    constexpr uint32_t kLg = 12;
    constexpr int kTrials = 200000;
    for (size_t size : {64, 1024, 8192}) {
      SamplingOn on(kLg);
      ClearBooks();
      for (int i = 0; i < kTrials; i++) Free(Allocate(size));
      REQUIRE(IsBinomial(ReadBooks().allocs, kTrials, SampleProbability(size, kLg)));
      REQUIRE(ReadBooks().errors == 0);
    }
    return "";
  });
}

TEST(Xmalloc, SaysWhatFailedAndAborts) {
  EXPECT_EQ(CheckXmalloc(nullptr, kErrorInMalloc), nullptr) << "it is off";
  EXPECT_DEATH(
      {
        core_options.xmalloc = true;
        CheckXmalloc(nullptr, kErrorInRallocx);
      },
      "^<jemalloc>: Error in rallocx\\(\\): out of memory\n$");
}

// What the kernel was told about the mapping that holds `pointer`: smaps has "hg" for asked for, "nh" for forbidden.
std::string Advice(const void* pointer) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool here = false;
  while (std::getline(maps, line)) {
    unsigned long begin;
    unsigned long end;
    if (sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
      here = begin <= address && address < end;
    } else if (here && line.rfind("VmFlags:", 0) == 0) {
      std::istringstream flags(line);
      std::string flag;
      while (flags >> flag) {
        if (flag == "hg" || flag == "nh") return flag;
      }
      return "";
    }
  }
  return "?";
}

// In the first chunk, in a later one, and huge.
std::string Advices(Thp thp) {
  core_options.thp = thp;
  void* first = Allocate(100000);
  void* later = nullptr;
  for (int i = 0; i < 4; i++) later = Allocate(15 * kMiB);
  return Advice(first) + "," + Advice(later) + "," + Advice(Allocate(40 * kMiB));
}

TEST(Thp, Never) {
  ExpectInNewProcess([]() -> std::string {
    REQUIRE(Advices(Thp::kNever) == "nh,nh,nh");
    return "";
  });
}

TEST(Thp, Always) {
  ExpectInNewProcess([]() -> std::string {
    REQUIRE(Advices(Thp::kAlways) == "hg,hg,hg");
    return "";
  });
}

TEST(Thp, DefaultKeepsSmallProcessesSmall) {
  ExpectInNewProcess([]() -> std::string {
    REQUIRE(Advices(Thp::kDefault) == "nh,,");
    return "";
  });
}

}  // namespace
}  // namespace heaptap
