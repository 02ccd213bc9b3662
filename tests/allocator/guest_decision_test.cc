// SPDX-License-Identifier: Apache-2.0
//
// Which allocations of a guest are samples, over a host that is this file. Seeds are fixed by the rule that runs the
// tests.
#include <errno.h>
#include <gtest/gtest.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <atomic>
#include <thread>

#include "allocator/core/thread.h"
#include "allocator/guest/decision.h"
#include "allocator/guest/start.h"
#include "allocator/guest/thread.h"
#include "allocator/guest/usable_size.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {

constinit std::atomic<GuestState> guest_state{GuestState::kUnknown};

namespace {

size_t usable_size;

}  // namespace

size_t HostUsableSize(size_t, size_t) {
  errno = ENOENT;
  return usable_size;
}

namespace {

using testing::IsBinomial;
using testing::SampleProbability;
using testing::SamplingOn;

constexpr uint64_t kTrials = 100000;

class GuestCountdown : public ::testing::Test {
 protected:
  GuestCountdown() {
    guest_state = GuestState::kActive;
    usable_size = 0;
  }

  template <typename Body>
  static void InNewThread(Body body) {
    std::thread(body).join();
  }
  // What is decided about an allocation; weight 0: it is no sample.
  static Decision Allocate(size_t size, size_t alignment = 1) {
    return Charge(ChargedSize(size, alignment)) ? Decide(size, alignment) : Decision{};
  }
  static uint64_t CountSamples(size_t size, uint64_t trials, uint64_t weight) {
    uint64_t samples = 0;
    for (uint64_t i = 0; i < trials; i++) {
      const Decision decision = Allocate(size);
      EXPECT_LE(guest_thread.left, kStride);
      if (decision.weight == 0) continue;
      samples++;
      EXPECT_EQ(decision.usable, usable_size);
      EXPECT_EQ(decision.weight, weight);
    }
    return samples;
  }
};

TEST_F(GuestCountdown, FollowsTheLawOfTheUsableSize) {
  // At 2^20 most allocations are charged to what is behind a stride.
  for (const uint32_t lg : {8u, 12u, 16u, 20u}) {
    SamplingOn on(lg);
    for (const size_t size : {24u, 1000u, 30000u}) {
      usable_size = size + 8;
      const double p = SampleProbability(usable_size, lg);
      const auto weight = static_cast<uint64_t>(round(static_cast<double>(usable_size) / p));
      InNewThread([=] {
        const uint64_t samples = CountSamples(size, kTrials, weight);
        EXPECT_TRUE(IsBinomial(samples, kTrials, p)) << samples << " of " << size << " bytes at 2^" << lg;
      });
    }
  }
}

TEST_F(GuestCountdown, AUsableSizeAboveTheChargeHasALargerWeight) {
  constexpr uint32_t kLg = 12;
  SamplingOn on(kLg);
  constexpr size_t kSize = 100;
  usable_size = 300;
  const double p = SampleProbability(ChargeOf(kSize), kLg);
  const auto weight = static_cast<uint64_t>(round(300 / p));
  InNewThread([=] {
    const uint64_t samples = CountSamples(kSize, kTrials, weight);
    EXPECT_TRUE(IsBinomial(samples, kTrials, p)) << samples;
  });
}

TEST_F(GuestCountdown, ExactlyAllAtIntervalZero) {
  SamplingOn on(0);
  usable_size = 40;
  InNewThread([] { EXPECT_EQ(CountSamples(32, 1000, 40), 1000u); });
}

TEST_F(GuestCountdown, WhatTheHostRefusesIsNoSample) {
  SamplingOn on(0);
  InNewThread([] {
    for (int i = 0; i < 10; i++) EXPECT_EQ(Allocate(32).weight, 0u);
  });
}

TEST_F(GuestCountdown, AlignmentIsCharged) {
  SamplingOn on(0);
  usable_size = 40;
  InNewThread([] {
    guest_thread.left = guest_thread.begin = 5000;
    guest_thread.interval = 1;
    Allocate(100, 64);
    EXPECT_EQ(guest_thread.left, 5000 - ChargeOf(163));
  });
}

TEST_F(GuestCountdown, NoneWhileSamplingIsOffOrTheGuestPassive) {
  usable_size = 40;
  const auto none = [] {
    for (int i = 0; i < 1000; i++) EXPECT_EQ(Allocate(kStride / 10).weight, 0u);
    EXPECT_LE(guest_thread.left, kStride);
  };
  InNewThread(none);
  SamplingOn on(0);
  guest_state = GuestState::kPassive;
  InNewThread(none);
}

TEST_F(GuestCountdown, TheLawHoldsForTheFirstAllocationsOfAnInterval) {
  constexpr uint32_t kLg = 10;
  SamplingOn on(kLg);
  constexpr size_t kSize = 300;
  usable_size = 304;
  InNewThread([] {
    uint64_t first = 0, second = 0;
    for (uint64_t i = 0; i < kTrials; i++) {
      ResetCountdown();
      first += Allocate(kSize).weight != 0;
      second += Allocate(kSize).weight != 0;
    }
    const double p = SampleProbability(304, kLg);
    EXPECT_TRUE(IsBinomial(first, kTrials, p)) << first;
    EXPECT_TRUE(IsBinomial(second, kTrials, p)) << second;
  });
}

TEST_F(GuestCountdown, AChangeOfTheIntervalIsNoticedWithinAStride) {
  usable_size = 104;
  InNewThread([] {
    for (int i = 0; i < 1000; i++) Allocate(100);
    SamplingOn on(0);
    uint64_t charged = ChargeOf(100);
    while (Allocate(100).weight == 0) charged += ChargeOf(100);
    EXPECT_LE(charged, kStride + ChargeOf(100));
  });
}

// The triggers of dumps count half of the charges, without what is still in the countdown.
TEST_F(GuestCountdown, HalfOfTheChargesCountsAsAllocated) {
  constexpr uint32_t kLg = 14;
  SamplingOn on(kLg);
  usable_size = 104;
  InNewThread([] {
    Allocate(100);
    const uint64_t before = thread_counters.allocated;
    for (uint64_t i = 0; i < kTrials; i++) Allocate(100);
    const double counted = static_cast<double>(thread_counters.allocated - before);
    // Where a countdown ends, what exceeds it is dropped: half a charge of each.
    EXPECT_NEAR(counted, kTrials * ChargeOf(100) / 2.0, kStride + kTrials * ChargeOf(100) / 100.0);
  });
}

TEST_F(GuestCountdown, KeepsErrno) {
  SamplingOn on(0);
  usable_size = 40;
  InNewThread([] {
    errno = EDOM;
    EXPECT_NE(Allocate(32).weight, 0u);
    EXPECT_EQ(errno, EDOM);
  });
}

}  // namespace
}  // namespace heaptap
