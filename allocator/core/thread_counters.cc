// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread_counters.h"

#include <stdint.h>

namespace heaptap {
namespace {

constexpr int64_t kPeakDistance = 64 * 1024;

}  // namespace

constinit thread_local ThreadCounters thread_counters{};

void ThreadCounters::RecordPeak(uint64_t distance) {
  if (Net() > peak) peak = Net();
  peak_distance = static_cast<int64_t>(distance) > kPeakDistance ? static_cast<int64_t>(distance) : kPeakDistance;
}

}  // namespace heaptap
