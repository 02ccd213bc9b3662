// SPDX-License-Identifier: Apache-2.0
#include "maintenance.h"

#include "system.h"
#include "thread.h"
#include "units.h"

namespace heaptap {
namespace {

constexpr uint64_t kPeriod = 50;      // milliseconds between two rounds
constexpr uint64_t kPurgeAge = 1000;  // milliseconds that a unit stays dirty
constexpr uint32_t kMinimumTicks = 16;
constexpr uint32_t kMaximumTicks = 1024;

constinit std::atomic<uint64_t> last_round;

}  // namespace

bool MaintainHeap(Heap* heap) {
  uint64_t now = CoarseMilliseconds();
  uint64_t last = last_round.load(std::memory_order_relaxed);
  bool due = now - last >= kPeriod;
  // Look half as often when nothing was due, and twice as often when something was.
  uint32_t interval = due ? heap->tick_interval / 2 : heap->tick_interval * 2;
  interval = interval < kMinimumTicks ? kMinimumTicks : interval > kMaximumTicks ? kMaximumTicks : interval;
  heap->tick_interval = interval;
  heap->ticks_left = interval;
  if (now - heap->idle_since >= kPurgeAge) {
    heap->idle_since = now;
    heap->ReleaseIdle();
  }
  // One thread does the round.
  return due && last_round.compare_exchange_strong(last, now, std::memory_order_relaxed);
}

void MaintainProcess() {
  ScavengeParkedHeap();
  Purge(kPurgeAge);
}

}  // namespace heaptap
