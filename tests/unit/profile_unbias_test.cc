// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "userspace/profile/unbias.h"

namespace heaptap::profile {
namespace {

constexpr uint64_t kPeriods[] = {1, 2, 1024, 524288, uint64_t{1} << 30, uint64_t{1} << 63};

double Probability(double size, uint64_t period) { return -std::expm1(-size / static_cast<double>(period)); }

TEST(Bias, OneSizeIsTheSamplesThemselves) {
  for (uint64_t period : {uint64_t{1024}, uint64_t{524288}, uint64_t{1} << 30}) {
    for (uint64_t size : {8, 600, 4096, 1 << 20, 1 << 30}) {
      for (uint64_t samples : {1, 2, 17, 1000000}) {
        double objects = static_cast<double>(samples) / Probability(static_cast<double>(size), period);
        BiasedCount expected = {samples, samples * size};
        EXPECT_EQ(Bias(objects, objects * static_cast<double>(size), period), expected) << period << " " << size;
      }
    }
  }
}

TEST(LongestPeriod, IsThatOfTheSamples) {
  for (const uint64_t period : {uint64_t{1024}, uint64_t{524288}}) {
    for (const uint64_t size : {8, 600, 4096}) {
      const double objects = 5 / Probability(static_cast<double>(size), period);
      const Estimate estimate = {.samples = 5, .objects = objects, .bytes = objects * static_cast<double>(size)};
      EXPECT_GT(LongestPeriod(estimate), period) << size;
      EXPECT_LT(LongestPeriod(estimate), 1.2 * static_cast<double>(period)) << size;
    }
  }
  // Nearly every object of 16 MiB is a sample at each of these periods.
  EXPECT_GT(LongestPeriod({.samples = 3, .objects = 3, .bytes = 3 << 24}), 524288);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(LongestPeriod({}), kInfinity);
  EXPECT_EQ(LongestPeriod({.samples = 1, .objects = kInfinity, .bytes = 1}), kInfinity);
  EXPECT_EQ(LongestPeriod({.samples = 1, .objects = kInfinity, .bytes = kInfinity}), kInfinity);
  EXPECT_GE(LongestPeriod({.samples = 1, .objects = 1e-320, .bytes = 1}), 0);
}

TEST(Bias, AReaderArrivesAtTheEstimatesOfAMix) {
  constexpr uint64_t kPeriod = 524288;
  double objects = 0;
  double bytes = 0;
  for (double size : {16.0, 64.0, 600.0, 4096.0, 1e6, 1e7}) {
    double of_each = 1000 / Probability(size, kPeriod);
    objects += of_each;
    bytes += of_each * size;
  }
  UnbiasedCount shown = Unbias(Bias(objects, bytes, kPeriod), kPeriod);
  // 1 in 1000: the number of samples is rounded.
  EXPECT_NEAR(shown.objects / objects, 1, 1e-3);
  EXPECT_NEAR(shown.bytes / bytes, 1, 1e-3);
}

TEST(Bias, RoundingCostsAtMostHalfASample) {
  for (uint64_t period : kPeriods) {
    for (double objects = 1; objects < 1e9; objects *= 3.7) {
      for (double size = 8; size < 1e10; size *= 5.3) {
        BiasedCount count = Bias(objects, objects * size, period);
        double exact = objects * Probability(size, period);
        EXPECT_NEAR(static_cast<double>(count.objects), std::max(exact, 1.0), 0.5 + exact * 1e-9);
      }
    }
  }
}

TEST(Bias, EveryAllocationRecorded) {
  // With a period of 1 nothing is estimated, and a reader's correction is undone to the last digit.
  UnbiasedCount shown = Unbias(Bias(1000000, 8000000, 1), 1);
  EXPECT_EQ(std::llround(shown.bytes), 8000000);
  EXPECT_EQ(std::llround(shown.objects), 1000000);
}

TEST(Bias, NothingIsNothing) {
  for (uint64_t period : kPeriods) {
    EXPECT_EQ(Bias(0, 0, period), BiasedCount());
    EXPECT_EQ(Bias(-1, -1, period), BiasedCount());
    EXPECT_EQ(Bias(std::nan(""), std::nan(""), period), BiasedCount());
  }
}

// What perl computes: without expm1.
double ReadersProbability(const BiasedCount& count, uint64_t period) {
  return 1 - std::exp(-(static_cast<double>(count.bytes) / static_cast<double>(count.objects)) /
                      static_cast<double>(period));
}

TEST(Bias, NeverMakesAReaderDivideByZero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double estimates[] = {0, 1e-300, 0.01, 0.5, 1, 8, 1e6, 1e18, 1e30, 1e300, kInfinity};
  for (uint64_t period : kPeriods) {
    for (double objects : estimates) {
      for (double bytes : estimates) {
        BiasedCount count = Bias(objects, bytes, period);
        if (objects == 0 && bytes == 0) continue;
        ASSERT_GT(count.objects, 0u) << objects << " " << bytes << " " << period;
        ASSERT_GT(count.bytes, 0u) << objects << " " << bytes << " " << period;
        ASSERT_GT(ReadersProbability(count, period), 0) << objects << " " << bytes << " " << period;
      }
    }
  }
}

TEST(Bias, PeriodOfZeroIsOne) { EXPECT_EQ(Bias(10, 1000, 0), Bias(10, 1000, 1)); }

TEST(Unbias, SmallSizesKeepTheirDigits) {
  // p = x/R - (x/R)^2/2 + ...; 1 - exp(-x/R) has 3 digits of it here.
  constexpr uint64_t kPeriod = uint64_t{1} << 43;
  EXPECT_NEAR(Unbias({1, 8}, kPeriod).objects / (static_cast<double>(kPeriod) / 8), 1, 1e-9);
  EXPECT_EQ(Bias(1e15, 8e15, kPeriod), (BiasedCount{909, 7276}));
}

TEST(Unbias, OfNothing) {
  EXPECT_EQ(Unbias({}, 524288).objects, 0);
  EXPECT_EQ(Unbias({}, 524288).bytes, 0);
}

}  // namespace
}  // namespace heaptap::profile
