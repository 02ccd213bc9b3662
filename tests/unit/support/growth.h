// SPDX-License-Identifier: Apache-2.0
//
// How the cost of something grows, whatever machine it runs on.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstddef>

namespace heaptap {

// The inputs of ExpectLinear: the second is to be so many times as large as the first.
inline constexpr size_t kGrowth = 4;

// Runs `work(0)` and `work(1)`, on the small and on the large input. Expects that the large one takes this thread about
// kGrowth times as long and not kGrowth * kGrowth: the least of some runs of either, with room for caches that are
// full.
template <typename Work>
void ExpectLinear(Work work) {
  constexpr int kRuns = 3;
  constexpr double kMost = 10;
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
  EXPECT_LE(large, kMost * small + kNoise) << "seconds; " << small << " for an input of 1/" << kGrowth;
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_GROWTH_H_
