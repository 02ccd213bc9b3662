// SPDX-License-Identifier: Apache-2.0
//
// Measures how the cost of something grows, independently of the machine.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstddef>

namespace heaptap {

// For ExpectLinear: the second input must be this many times as large as the first.
inline constexpr size_t kGrowth = 4;

// Runs `work(0)` on the small and `work(1)` on the large input. Expects that the large one takes this thread about
// kGrowth times as long, not kGrowth * kGrowth. A disturbance only makes a run longer. So the shortest of some runs of
// the small input counts, and the large input is run until one run is short enough. No run is short enough if the cost
// grows too fast.
template <typename Work>
void ExpectLinear(Work work) {
  constexpr int kSmallRuns = 3;
  constexpr int kMaxLargeRuns = 30;
  constexpr double kMaxRatio = 10;  // more than kGrowth: large inputs fill caches
  constexpr double kNoise = 0.002;  // seconds
  auto seconds = [&](size_t which) {
    auto now = [] {
      timespec time;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
    };
    const double begin = now();
    work(which);
    return now() - begin;
  };
  double small = seconds(0);
  for (int run = 1; run < kSmallRuns; run++) small = std::min(small, seconds(0));
  const double limit = kMaxRatio * small + kNoise;
  double large = seconds(1);
  for (int run = 1; run < kMaxLargeRuns && large > limit; run++) large = std::min(large, seconds(1));
  EXPECT_LE(large, limit) << "seconds; " << small << " for an input of 1/" << kGrowth;
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_
