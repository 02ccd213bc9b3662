// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/triggers.h"

#include <stdint.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/core/observer.h"
#include "allocator/core/thread.h"
#include "allocator/core/thread_totals.h"
#include "allocator/process/process.h"
#include "allocator/profiling/dump.h"
#include "allocator/profiling/profiling.h"
#include "allocator/sampling/sampler.h"

namespace heaptap {
namespace {

class Interval {
 public:
  void Start(uint64_t length) { length_ = length; }
  uint64_t length() const { return length_; }

  // Adds what the thread has allocated since `*counted`, and updates `*counted`. True if an interval has ended.
  bool Passed(uint64_t* counted) {
    if (length_ == 0) return false;
    const uint64_t allocated = *ThreadAllocatedCounter();
    const uint64_t bytes = allocated - *counted;
    *counted = allocated;
    uint64_t old = count_.load(std::memory_order_relaxed);
    uint64_t now;
    do {
      now = (old + bytes) % length_;
    } while (!count_.compare_exchange_weak(old, now, std::memory_order_relaxed));
    return old + bytes >= length_;
  }

 private:
  uint64_t length_ = 0;  // bytes; 0: never
  std::atomic<uint64_t> count_{};
};

constinit Interval dump_interval;
constinit Interval print_interval;
void (*print_statistics)(const char* letters);
// The thread's allocated bytes that have been added to the intervals.
constinit thread_local uint64_t counted_for_dumps;
constinit thread_local uint64_t counted_for_prints;

constinit std::atomic<uint64_t> high_water;
constinit std::atomic<bool> dump_at_high_water;
constinit std::atomic<bool> high_water_dump_due;

bool IsHighWaterDumpDue() { return high_water_dump_due.load(std::memory_order_relaxed); }

void DumpIfHighWaterDue() {
  if (!IsHighWaterDumpDue() || !high_water_dump_due.exchange(false, std::memory_order_relaxed)) return;
  DumpOnTrigger(HEAPTAP_DUMP_HIGH_WATER);
}

bool IsPrintedAtIntervals() { return print_interval.length() != 0; }

void CheckPrintInterval() {
  if (print_interval.Passed(&counted_for_prints)) print_statistics(ProcessConfiguration().stats_interval_opts);
}

}  // namespace

uint64_t dump_interval_bytes;

void StartTriggers(void (*print)(const char* letters)) {
  print_statistics = print;
  const Configuration& configuration = ProcessConfiguration();
  if (configuration.prof) dump_interval_bytes = configuration.prof_interval;
  dump_interval.Start(dump_interval_bytes);
  if (configuration.stats_interval >= 0) {
    // As in jemalloc, 0 prints at every check.
    const int64_t bytes = configuration.stats_interval;
    print_interval.Start(bytes > 0 ? static_cast<uint64_t>(bytes) : 1);
  }
  SetHighWaterDumped(configuration.prof && configuration.prof_gdump);
}

void CountTowardsDump() {
  if (dump_interval.Passed(&counted_for_dumps) && IsProfilingActive()) DumpOnTrigger(HEAPTAP_DUMP_INTERVAL);
}

bool IsHighWaterDumped() { return dump_at_high_water.load(std::memory_order_relaxed); }

void SetHighWaterDumped(bool dumped) {
  dump_at_high_water.store(dumped, std::memory_order_relaxed);
  if (!dumped) ForgetHighWater();
}

void ForgetHighWater() { high_water_dump_due.store(false, std::memory_order_relaxed); }

void observer::ActiveGrew() {
  const uint64_t active = ReadFigure(&heaptap_statistics::active);
  uint64_t mark = high_water.load(std::memory_order_relaxed);
  do {
    if (active <= mark) return;
  } while (!high_water.compare_exchange_weak(mark, active, std::memory_order_relaxed));
  if (HEAPTAP_LIKELY(!IsHighWaterDumped()) || !IsProfilingActive()) return;
  high_water_dump_due.store(true, std::memory_order_relaxed);
  if (current_heap != &empty_heap) current_heap->ticks_left = 0;
}

bool observer::IsAnythingDue() { return IsHighWaterDumpDue() || IsPrintedAtIntervals(); }

bool observer::NeedsFrequentTicks() { return IsPrintedAtIntervals(); }

void observer::SlowPathEnds() {
  DumpIfHighWaterDue();
  CheckPrintInterval();
  // While sampling is on, each sample checks the interval.
  if (CurrentLgInterval() == kSamplingOff) CheckDumpInterval();
}

}  // namespace heaptap
