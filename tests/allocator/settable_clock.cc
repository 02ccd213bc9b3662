// SPDX-License-Identifier: Apache-2.0
#include "settable_clock.h"

#include <algorithm>
#include <atomic>

#include "allocator/core/allocate.h"
#include "allocator/core/thread.h"
#include "allocator/platform/clock.h"

namespace heaptap {

// The linker sends the allocator's calls of the functions without a prefix here.
uint64_t RealReadClock(clockid_t clock) asm("__real__ZN7heaptap9ReadClockEi");
uint64_t ReadSettableClock(clockid_t clock) asm("__wrap__ZN7heaptap9ReadClockEi");
void RealReturnMemory() asm("__real__ZN7heaptap12ReturnMemoryEv");
void CountReturnMemory() asm("__wrap__ZN7heaptap12ReturnMemoryEv");

namespace {

// The allocator reads the clock before constructors run.
constinit std::atomic<uint64_t> standing{0};  // nanoseconds; 0: the clock runs
constinit std::atomic<uint64_t> ahead{0};     // nanoseconds by which it is ahead of the system's
constinit std::atomic<uint64_t> reads{0};
constinit std::atomic<uint64_t> rounds{0};  // of the background thread, which have ended

uint64_t Now(clockid_t clock) {
  const uint64_t stands_at = standing.load();
  return stands_at != 0 ? stands_at : RealReadClock(clock) + ahead.load();
}

}  // namespace

uint64_t ReadSettableClock(clockid_t clock) {
  reads.fetch_add(1);
  return Now(clock);
}

void CountReturnMemory() {
  RealReturnMemory();
  rounds.fetch_add(1);
  rounds.notify_all();
}

namespace testing {

SettableClock::SettableClock() { standing.store(Now(CLOCK_MONOTONIC)); }

SettableClock::~SettableClock() {
  const uint64_t system = RealReadClock(CLOCK_MONOTONIC_COARSE);
  ahead.store(std::max(ahead.load(), standing.load() - std::min(system, standing.load())));
  standing.store(0);
}

void SettableClock::Advance(uint64_t milliseconds) { standing.fetch_add(milliseconds * kNanosecondsPerMillisecond); }

uint64_t ClockReads() { return reads.load(); }

void AwaitBackgroundRound() {
  // The round that is under way may have begun before the call; the next one has not.
  const uint64_t before = rounds.load();
  for (uint64_t now = before; now < before + 2; now = rounds.load()) rounds.wait(now);
}

void TakeSlowPaths() {
  constexpr int kMostBetweenTwoReadings = 1024;  // kMaximumTicks of maintenance.cc
  for (int i = 0; i <= kMostBetweenTwoReadings; i++) TickSlowPath();
}

}  // namespace testing
}  // namespace heaptap
