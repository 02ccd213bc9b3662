// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "userspace/profile/estimate.h"

namespace heaptap::profile {
namespace {

constexpr uint64_t kOne = uint64_t{1} << HEAPTAP_OBJECT_FRACTION_BITS;

TEST(ToWhole, RoundsAndStaysInRange) {
  EXPECT_EQ(ToWhole(0.4), 0u);
  EXPECT_EQ(ToWhole(0.5), 1u);
  EXPECT_EQ(ToWhole(1e15 + 1), 1000000000000001u);
  EXPECT_EQ(ToWhole(-5), 0u);
  EXPECT_EQ(ToWhole(std::nan("")), 0u);
  EXPECT_EQ(ToWhole(1e30), (uint64_t{1} << 63) - 1024);
  EXPECT_EQ(ToWhole(std::numeric_limits<double>::infinity()), (uint64_t{1} << 63) - 1024);
}

TEST(Estimate, OfACounter) {
  heaptap_count count = {.objects = 2, .bytes = 1200, .weight = 1049176, .weighted_objects = 1748 * kOne + kOne / 2};
  EXPECT_EQ(ToEstimate(count), (Estimate{2, 1200, 1748.5, 1049176}));
}

TEST(Estimate, Adds) {
  Estimate sum = {1, 10, 1.5, 15, 7};
  sum += Estimate{2, 20, 2.25, 30, 8};
  EXPECT_EQ(sum, (Estimate{3, 30, 3.75, 45, 15}));
}

// Relative to weight * (weight - size), from which it may differ by a unit.
TEST(Variance, OfASample) {
  EXPECT_EQ(heaptap_variance(64, 64), 0u);
  EXPECT_EQ(heaptap_variance(64, 63), 0u) << "a program's own weight may be anything";
  EXPECT_EQ(heaptap_variance(64, 65), 1u) << "never taken for exact";
  constexpr uint64_t kSizes[] = {1, 64, 1 << 19, 1 << 26};
  for (const uint64_t size : kSizes) {
    for (int bits = 8; bits < 39; bits++) {
      const uint64_t weight = size + (uint64_t{1} << bits);
      const double exact = static_cast<double>(weight) * static_cast<double>(weight - size);
      const double unit = std::ldexp(1, HEAPTAP_VARIANCE_UNIT_BITS);
      EXPECT_NEAR(std::ldexp(static_cast<double>(heaptap_variance(size, weight)), HEAPTAP_VARIANCE_UNIT_BITS), exact,
                  std::max(unit, exact * 1e-5))
          << size << " " << weight;
    }
  }
  EXPECT_GT(heaptap_variance(1, UINT64_MAX), heaptap_variance(1, uint64_t{1} << 39)) << "no overflow";
  EXPECT_EQ(ToEstimate({.objects = 1, .bytes = 64, .weight = 1024, .variance = 15}).variance, 15 << 16);
}

TEST(Variance, OfEqualSamples) {
  EXPECT_EQ(VarianceOfEqualSamples({}), 0);
  EXPECT_EQ(VarianceOfEqualSamples({.samples = 4, .sampled_bytes = 400, .bytes = 4000}), 4.0 * 1000 * 900);
  EXPECT_EQ(VarianceOfEqualSamples({.samples = 4, .sampled_bytes = 400, .bytes = 396}), 0) << "rounded";
}

// A sample of z bytes stands for z / (1 - exp(-z/R)) bytes.
Estimate Samples(uint64_t count, uint64_t size, double period) {
  const double weight = static_cast<double>(size) / -std::expm1(-static_cast<double>(size) / period);
  return {.samples = count, .sampled_bytes = count * size, .bytes = static_cast<double>(count) * weight};
}

TEST(Intervals, SamplesOfOneTellNoOther) {
  for (const uint64_t period : {uint64_t{1}, uint64_t{1} << 14, uint64_t{1} << 19}) {
    for (const uint64_t count : {1, 2, 100}) {
      Estimate mix;
      for (const uint64_t size : {8, 1000, 1 << 20, 1 << 30}) {
        const Estimate estimate = Samples(count, size, static_cast<double>(period));
        mix += estimate;
        EXPECT_FALSE(HasFinerSamples(estimate, period)) << period << " " << count << " " << size;
        EXPECT_FALSE(HasCoarserSamples(estimate, period)) << period << " " << count << " " << size;
      }
      EXPECT_FALSE(HasFinerSamples(mix, period) || HasCoarserSamples(mix, period)) << period << " " << count;
    }
  }
  EXPECT_FALSE(HasFinerSamples({}, 1 << 19) || HasCoarserSamples({}, 1 << 19));
  // Read in the middle of a sample.
  EXPECT_FALSE(HasFinerSamples({.samples = 1}, 1 << 19));
  EXPECT_FALSE(HasCoarserSamples({.samples = 1, .sampled_bytes = 8, .bytes = 2 << 19}, 1 << 19));
}

TEST(Intervals, SamplesOfAnotherTell) {
  Estimate mix = Samples(5, 100, 1 << 19);
  mix += Samples(100, 100, 1 << 14);
  EXPECT_TRUE(HasFinerSamples(mix, 1 << 19));
  EXPECT_FALSE(HasCoarserSamples(mix, 1 << 19));
  EXPECT_TRUE(HasCoarserSamples(mix, 1 << 14));
  EXPECT_FALSE(HasFinerSamples(mix, 1 << 14));
}

TEST(Estimate, IsZero) {
  EXPECT_TRUE(Estimate().IsZero());
  EXPECT_FALSE((Estimate{1, 1, 1, 1}).IsZero());
  EXPECT_FALSE((Estimate{0, 0, 0, 1}).IsZero());
}

TEST(LiveEstimate, IsWhatWasNotFreed) {
  heaptap_tally tally = {
      .allocated = {.objects = 5, .bytes = 500, .weight = 5000, .weighted_objects = 50 * kOne, .variance = 9},
      .freed = {.objects = 2, .bytes = 100, .weight = 1000, .weighted_objects = 10 * kOne, .variance = 4}};
  EXPECT_EQ(LiveEstimate(tally), (Estimate{3, 400, 40, 4000, 5 << HEAPTAP_VARIANCE_UNIT_BITS}));
}

TEST(LiveEstimate, NothingLeftIsExactlyNothing) {
  heaptap_count all = {.objects = 5, .bytes = 500, .weight = 5000, .weighted_objects = 50 * kOne};
  EXPECT_EQ(LiveEstimate({.allocated = all, .freed = all}), Estimate());
}

TEST(LiveEstimate, HalvesReadAtDifferentMoments) {
  heaptap_tally ahead = {.allocated = {.objects = 1, .bytes = 8, .weight = 800, .weighted_objects = kOne},
                         .freed = {.objects = 2, .bytes = 16, .weight = 1600, .weighted_objects = 2 * kOne}};
  EXPECT_EQ(LiveEstimate(ahead), Estimate());
  heaptap_tally torn = {.allocated = {.objects = 3, .bytes = 8, .weight = 800, .weighted_objects = kOne},
                        .freed = {.objects = 2, .bytes = 16, .weight = 100, .weighted_objects = 2 * kOne}};
  EXPECT_EQ(LiveEstimate(torn), (Estimate{1, 0, 0, 700}));
  heaptap_tally freed_first = {.allocated = {.objects = 2, .bytes = 16, .weight = 900, .weighted_objects = 0},
                               .freed = {.objects = 2, .bytes = 16, .weight = 800, .weighted_objects = 0}};
  EXPECT_TRUE(LiveEstimate(freed_first).IsZero());
}

}  // namespace
}  // namespace heaptap::profile
