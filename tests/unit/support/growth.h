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
// kGrowth times as long, not kGrowth * kGrowth. Compares the minima of some runs, and tolerates effects of full caches.
template <typename Work>
void ExpectLinear(Work work) {
  constexpr int kRuns = 3;
  constexpr double kMaxRatio = 10;
  constexpr double kNoise = 0.002;  // seconds
  auto cheapest = [&](size_t which) {
    double least = 1e9;
    for (int run = 0; run < kRuns; run++) {
      auto seconds = [] {
        timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
      };
      const double begin = seconds();
      work(which);
      least = std::min(least, seconds() - begin);
    }
    return least;
  };
  const double small = cheapest(0);
  const double large = cheapest(1);
  EXPECT_LE(large, kMaxRatio * small + kNoise) << "seconds; " << small << " for an input of 1/" << kGrowth;
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_
