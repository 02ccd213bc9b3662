// SPDX-License-Identifier: Apache-2.0
//
// The order of locks, which debug builds assert.
#include "allocator/platform/mutex.h"

#include <gtest/gtest.h>

#include "allocator/core/allocate.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"

namespace heaptap {
namespace {

constinit Mutex heaps{LockRank::kHeaps};
constinit Mutex units{LockRank::kUnits};
constinit Mutex pools[2] = {Mutex(LockRank::kPool), Mutex(LockRank::kPool)};

void Fast() { GTEST_FLAG_SET(death_test_style, "fast"); }

TEST(Mutex, OrderIsAllowed) {
  {
    MutexLock first(heaps);
    MutexLock second(pools[0]);
    MutexLock third(pools[1]);
    MutexLock fourth(units);
    EXPECT_TRUE(Mutex::HoldsAny());
    EXPECT_FALSE(units.TryLock());
    EXPECT_FALSE(units.LockWithin(1));
  }
  EXPECT_FALSE(Mutex::HoldsAny());
  // Not in the order in which they were locked.
  heaps.Lock();
  units.Lock();
  heaps.Unlock();
  EXPECT_TRUE(Mutex::HoldsAny());
  units.Unlock();
  EXPECT_FALSE(Mutex::HoldsAny());
}

TEST(Mutex, WhatGivesUpIsAllowedInAnyOrder) {
  MutexLock lock(units);
  ASSERT_TRUE(heaps.TryLock());
  heaps.Unlock();
  ASSERT_TRUE(heaps.LockWithin(1));
  heaps.Unlock();
}

TEST(Mutex, ResetForgetsWhatTheThreadHolds) {
  units.Lock();
  units.Reset();
  EXPECT_FALSE(Mutex::HoldsAny());
  units.Reset();
  MutexLock first(heaps);
  MutexLock second(units);
}

TEST(MutexDeathTest, AgainstTheOrder) {
  Fast();
  EXPECT_DEATH(
      {
        units.Lock();
        heaps.Lock();
      },
      "^<heaptap>: lock order: \"heaps\" is locked while \"units\" is held\n$");
  EXPECT_DEATH(
      {
        pools[1].Lock();
        pools[0].Lock();
      },
      "^<heaptap>: lock order: \"pool\" is locked while \"pool\" is held\n$");
  EXPECT_DEATH(
      {
        Allocate(1);
        LockUnits();
        LockHeaps();
      },
      "^<heaptap>: lock order: \"heaps\" is locked while \"purge\" is held\n$");
}

TEST(MutexDeathTest, Twice) {
  Fast();
  EXPECT_DEATH(
      {
        units.Lock();
        units.Lock();
      },
      "^<heaptap>: lock order: \"units\" is locked while \"units\" is held\n$");
}

TEST(MutexDeathTest, AllocationUnderALock) {
  Fast();
  EXPECT_DEATH(
      {
        LockUnits();
        Allocate(1 << 20);
      },
      "^<heaptap>: lock order: \"units\" is locked while \"units\" is held\n$");
}

TEST(MutexDeathTest, UnlockOfAnothersLock) {
  Fast();
  EXPECT_DEATH(units.Unlock(), "^<heaptap>: lock order: \"units\" is unlocked by a thread that does not hold it\n$");
}

}  // namespace
}  // namespace heaptap
