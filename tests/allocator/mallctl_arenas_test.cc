// SPDX-License-Identifier: Apache-2.0
//
// arena.*, arenas.* and stats.* of mallctl.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/size_class.h"
#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/process/process.h"
#include "mallctl_values.h"

namespace heaptap {
namespace {

using testing::Do;
using testing::Get;
using testing::Set;

// --- arena, arenas ---------------------------------------------------------------------------------------------------

TEST(MallctlArenas, SizeClasses) {
  EXPECT_EQ(Get<unsigned>("arenas.nbins"), kSmallClasses);
  EXPECT_EQ(Get<size_t>("arenas.page"), kPageSize);
  for (unsigned i = 0; i < kSmallClasses; i++) {
    std::string bin = "arenas.bin." + std::to_string(i);
    EXPECT_EQ(Get<size_t>(bin + ".size"), kClassSize[i]);
    // As jemalloc's: the fewest whole pages that hold whole blocks.
    EXPECT_EQ(Get<size_t>(bin + ".slab_size"), std::lcm(kPageSize, size_t{kClassSize[i]}));
    EXPECT_EQ(Get<uint32_t>(bin + ".nregs"), std::lcm(kPageSize, size_t{kClassSize[i]}) / kClassSize[i]);
  }
  size_t size = kSmallMaximum;
  unsigned classes = Get<unsigned>("arenas.nlextents");
  for (unsigned i = 0; i < classes; i++) {
    size = RoundUpToClass(size + 1);
    EXPECT_EQ(Get<size_t>("arenas.lextent." + std::to_string(i) + ".size"), size);
  }
  EXPECT_EQ(RoundUpToClass(size + 1) > kMaximumRequest || RoundUpToClass(size + 1) == 0, true) << "the last";
  EXPECT_EQ(Do("arenas.lextent." + std::to_string(classes) + ".size"), ENOENT);
}

TEST(MallctlArenas, Lookup) {
  unsigned arena = 7;
  size_t length = sizeof(arena);
  void* pointer = Allocate(100);
  EXPECT_EQ(Mallctl("arenas.lookup", &arena, &length, &pointer, sizeof(pointer)), 0);
  EXPECT_EQ(arena, 0u);
  Free(pointer);
  pointer = &arena;
  EXPECT_EQ(Mallctl("arenas.lookup", &arena, &length, &pointer, sizeof(pointer)), EINVAL);
  EXPECT_EQ(Do("arenas.lookup"), EINVAL);
}

TEST(MallctlArenas, WhatCannotBe) {
  EXPECT_EQ(Do("arenas.create"), EINVAL) << "where to is not said";
  EXPECT_EQ(Do("arena.0.reset"), EFAULT);
  EXPECT_EQ(Do("arena.0.destroy"), EFAULT);
  EXPECT_EQ(Do("arena.0.extent_hooks"), EFAULT);
  EXPECT_EQ(Set("arena.0.retain_grow_limit", size_t{1} << 30), EFAULT);
  const char* word = "secondary";
  EXPECT_EQ(Set("arena.0.dss", word), EFAULT);
  word = "nowhere";
  EXPECT_EQ(Set("arena.0.dss", word), EINVAL);
  word = "disabled";
  EXPECT_EQ(Set("arena.4096.dss", word), 0);
  EXPECT_STREQ(Get<const char*>("arena.0.dss"), word);
}

TEST(MallctlArenas, Name) {
  char name[64] = "";
  char* target = name;
  size_t length = sizeof(target);
  EXPECT_EQ(Mallctl("arena.0.name", &target, &length, nullptr, 0), 0);
  EXPECT_STREQ(name, "auto_0");
  const char* longer = "a name of more than 31 characters, which is cut";
  EXPECT_EQ(Set("arena.0.name", longer), 0);
  EXPECT_EQ(Mallctl("arena.0.name", &target, &length, nullptr, 0), 0);
  EXPECT_EQ(name, std::string(longer, 31));
  const char* first = "auto_0";
  EXPECT_EQ(Set("arena.0.name", first), 0);
  EXPECT_EQ(Mallctl("arena.0.name", &target, &length, nullptr, 0), 0);
  EXPECT_STREQ(name, "auto_0");
  const char* none = nullptr;
  EXPECT_EQ(Set("arena.0.name", none), EINVAL);
  EXPECT_EQ(Set("arena.4096.name", first), EINVAL);
  length = 4;
  EXPECT_EQ(Mallctl("arena.0.name", &target, &length, nullptr, 0), EINVAL);
}

uint64_t Dirty() { return ReadFigure(&heaptap_statistics::dirty); }

// Leaves memory behind that is free and dirty.
void MakeDirty() {
  constexpr size_t kSize = size_t{4} << 20;
  void* block = Allocate(kSize);
  memset(block, 1, kSize);
  Free(block);
}

class MallctlDecay : public ::testing::Test {
 protected:
  void TearDown() override { SetDirtyDecay(ProcessConfiguration().dirty_decay_ms); }
};

TEST_F(MallctlDecay, PurgeGivesEverythingBack) {
  ASSERT_EQ(Set("arena.0.dirty_decay_ms", ssize_t{-1}), 0);
  for (const char* name : {"arena.0.purge", "arena.0.decay", "arena.4096.purge"}) {
    MakeDirty();
    EXPECT_GT(Dirty(), 0u) << name;
    EXPECT_EQ(Do(name), 0);
    EXPECT_EQ(Dirty(), 0u) << name;
  }
}

TEST_F(MallctlDecay, DirtyMemoryStaysAsLongAsItIsTold) {
  EXPECT_EQ(Get<ssize_t>("arena.0.dirty_decay_ms"), ProcessConfiguration().dirty_decay_ms);
  EXPECT_EQ(Set("arena.0.dirty_decay_ms", ssize_t{-1}), 0);
  EXPECT_EQ(Get<ssize_t>("stats.arenas.0.dirty_decay_ms"), -1);
  MakeDirty();
  uint64_t dirty = Dirty();
  EXPECT_GT(dirty, 0u);
  MaintainProcess(DueMaintenance::kRound);
  EXPECT_EQ(Dirty(), dirty) << "for ever";
  EXPECT_EQ(Set("arena.0.dirty_decay_ms", ssize_t{3600000}), 0);
  MaintainProcess(DueMaintenance::kRound);
  EXPECT_EQ(Dirty(), dirty) << "for an hour";
  EXPECT_EQ(Set("arena.0.dirty_decay_ms", ssize_t{0}), 0);
  MaintainProcess(DueMaintenance::kRound);
  EXPECT_EQ(Dirty(), 0u) << "not at all";
}

TEST_F(MallctlDecay, NothingStaysDirtyWithZero) {
  EXPECT_EQ(Set("arena.0.dirty_decay_ms", ssize_t{0}), 0);
  // The heap looks at the time no later than after so many slow paths; from then on, always.
  for (int i = 0; i < 1024; i++) Free(Allocate(size_t{64} << 10));
  MakeDirty();
  EXPECT_EQ(Dirty(), 0u);
}

TEST_F(MallctlDecay, TimesOfArenas) {
  EXPECT_EQ(Set("arena.0.dirty_decay_ms", ssize_t{-2}), EFAULT);
  EXPECT_EQ(Set("arena.0.dirty_decay_ms", 5), EINVAL);
  EXPECT_EQ(Do("arena.4096.dirty_decay_ms"), EFAULT);
  EXPECT_EQ(Set("arenas.dirty_decay_ms", ssize_t{5}), 0) << "for arenas that will be made";
  EXPECT_EQ(Get<ssize_t>("arenas.dirty_decay_ms"), 5);
  EXPECT_EQ(Get<ssize_t>("arena.0.dirty_decay_ms"), ProcessConfiguration().dirty_decay_ms);
  EXPECT_EQ(Set("arena.0.muzzy_decay_ms", ssize_t{7}), 0);
  EXPECT_EQ(Get<ssize_t>("arena.0.muzzy_decay_ms"), 7);
  EXPECT_EQ(Get<ssize_t>("stats.arenas.0.muzzy_decay_ms"), 7);
  EXPECT_EQ(Get<ssize_t>("arenas.muzzy_decay_ms"), 0);
  EXPECT_EQ(Get<ssize_t>("stats.arenas.4096.dirty_decay_ms"), -1);
}

// --- stats -----------------------------------------------------------------------------------------------------------

// Which name shows which figure; that the figures are right is tested in snapshot_test.cc.
TEST(MallctlStatistics, NamesShowTheSnapshot) {
  ASSERT_EQ(Set("epoch", uint64_t{1}), 0);
  Snapshot snapshot;
  LastSnapshot(&snapshot);
  EXPECT_EQ(Get<size_t>("stats.allocated"), snapshot.allocated);
  EXPECT_EQ(Get<size_t>("stats.active"), snapshot.active);
  EXPECT_EQ(Get<size_t>("stats.metadata"), snapshot.metadata);
  EXPECT_EQ(Get<size_t>("stats.resident"), snapshot.resident);
  EXPECT_EQ(Get<size_t>("stats.mapped"), snapshot.mapped);
  EXPECT_EQ(Get<size_t>("stats.retained"), snapshot.retained);
  EXPECT_EQ(Get<size_t>("stats.arenas.4096.pactive"), snapshot.active / kPageSize);
  EXPECT_EQ(Get<size_t>("stats.arenas.4096.pdirty"), snapshot.dirty / kPageSize);
  uint64_t allocations = 0;
  for (unsigned i = 0; i < kSmallClasses; i++) {
    const ClassStatistics& bin = snapshot.bins[i];
    allocations += bin.allocations;
    std::string name = "stats.arenas.4096.bins." + std::to_string(i);
    EXPECT_EQ(Get<uint64_t>(name + ".nmalloc"), bin.allocations);
    EXPECT_EQ(Get<uint64_t>(name + ".ndalloc"), bin.frees);
    EXPECT_EQ(Get<size_t>(name + ".curregs"), bin.live);
    EXPECT_EQ(Get<size_t>(name + ".curslabs"), bin.slabs);
  }
  EXPECT_EQ(Get<uint64_t>("stats.arenas.4096.small.nmalloc"), allocations);
  for (unsigned i = 0; i < kExtentClasses; i++) {
    std::string name = "stats.arenas.4096.lextents." + std::to_string(i);
    EXPECT_EQ(Get<size_t>(name + ".curlextents"), snapshot.extents[i].live);
  }
  EXPECT_STREQ(Get<const char*>("stats.arenas.0.dss"), "disabled");
  EXPECT_STREQ(Get<const char*>("stats.arenas.4096.dss"), "N/A");
  EXPECT_EQ(Do("stats.mutexes.reset"), 0);
}

}  // namespace
}  // namespace heaptap
