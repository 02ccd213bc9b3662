// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/maintenance.h"

#include <stdint.h>
#include <sys/types.h>

#include <atomic>

#include "allocator/core/decay.h"
#include "allocator/core/observer.h"
#include "allocator/platform/clock.h"

namespace heaptap {
namespace {

constexpr uint64_t kPeriod = 50;  // milliseconds between two rounds
constexpr uint32_t kMinimumTicks = 16;
constexpr uint32_t kMaximumTicks = 1024;

constinit std::atomic<uint64_t> last_round;

}  // namespace

DueMaintenance MaintainHeap(Heap* heap) {
  uint64_t now = CoarseMilliseconds();
  uint64_t last = last_round.load(std::memory_order_relaxed);
  ssize_t decay = DirtyDecay();
  bool at_once = decay == 0;  // each slow path is a round
  bool due = at_once || now - last >= kPeriod;
  // The clock is read half as often when nothing was due, and twice as often when something was.
  uint32_t interval = due ? heap->tick_interval / 2 : heap->tick_interval * 2;
  interval = interval < kMinimumTicks ? kMinimumTicks : interval > kMaximumTicks ? kMaximumTicks : interval;
  if (at_once) interval = 0;
  if (observer::NeedsFrequentTicks()) interval = kMinimumTicks;
  heap->tick_interval = interval;
  heap->ticks_left = interval;
  if (decay >= 0 && now - heap->idle_since >= static_cast<uint64_t>(decay)) {
    heap->idle_since = now;
    heap->ReleaseIdle();
    heap->BeginAging();
  }
  heap->Age();
  // One thread does the round.
  if (due && last_round.compare_exchange_strong(last, now, std::memory_order_relaxed)) return DueMaintenance::kRound;
  return observer::IsAnythingDue() ? DueMaintenance::kTriggers : DueMaintenance::kNothing;
}

}  // namespace heaptap
