// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/exponential.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace heaptap {
namespace {

using exponential_internal::kEdges;
using exponential_internal::kLayers;

constexpr int kDraws = 4000000;

std::vector<double> Draws() {
  Random random;
  random.Seed(1, 1);
  std::vector<double> draws(kDraws);
  for (double& draw : draws) draw = DrawExponential(&random);
  return draws;
}

TEST(Exponential, LayersHaveTheSameArea) {
  const double area = (kEdges[1] + 1) * std::exp(-kEdges[1]);
  EXPECT_NEAR(kEdges[0] * std::exp(-kEdges[1]), area, area * 1e-12);
  for (unsigned i = 1; i < kLayers; i++) {
    EXPECT_LT(kEdges[i + 1], kEdges[i]);
    EXPECT_NEAR(kEdges[i] * (std::exp(-kEdges[i + 1]) - std::exp(-kEdges[i])), area, area * 1e-9) << i;
  }
}

// Kolmogorov and Smirnov's largest difference from the law, over all of it.
TEST(Exponential, FollowsTheLaw) {
  std::vector<double> draws = Draws();
  std::sort(draws.begin(), draws.end());
  EXPECT_GT(draws.front(), 0);
  double difference = 0;
  for (int i = 0; i < kDraws; i++) {
    const double law = -std::expm1(-draws[i]);
    difference = std::max({difference, law - i / double{kDraws}, (i + 1) / double{kDraws} - law});
  }
  // Exceeded with probability 2 exp(-2 * 2.5^2), 1e-5.
  EXPECT_LE(difference * std::sqrt(double{kDraws}), 2.5);
}

// Chi-square over the stretches between the edges, of which the first is the tail.
TEST(Exponential, FollowsTheLawInEachLayerAndInTheTail) {
  std::vector<double> observed(kLayers);
  for (double draw : Draws()) {
    // The first edge from kEdges[1] on that is below the draw.
    observed[std::partition_point(kEdges.begin() + 1, kEdges.end(), [=](double edge) { return edge >= draw; }) -
             kEdges.begin() - 1]++;
  }
  double chi_square = 0;
  double above = 0;
  for (unsigned i = 0; i < kLayers; i++) {
    const double expected = (std::exp(-kEdges[i + 1]) - above) * kDraws;
    above = std::exp(-kEdges[i + 1]);
    chi_square += (observed[i] - expected) * (observed[i] - expected) / expected;
  }
  // 255 degrees of freedom: exceeded with probability 1e-5.
  EXPECT_LE(chi_square, 361);
}

// The law has no memory, so the tail beyond any x is the law again.
TEST(Exponential, TailHasItsMeanAndVariance) {
  double count = 0;
  double sum = 0;
  double squares = 0;
  Random random;
  random.Seed(2, 2);
  for (int i = 0; i < 10 * kDraws; i++) {
    const double beyond = DrawExponential(&random) - kEdges[1];
    if (beyond <= 0) continue;
    count++;
    sum += beyond;
    squares += beyond * beyond;
  }
  // About 18000 draws: 4.5 standard errors of the mean (1) and of the second moment (2, whose variance is 20).
  EXPECT_NEAR(count, 10.0 * kDraws * std::exp(-kEdges[1]), 4.5 * std::sqrt(count));
  EXPECT_NEAR(sum / count, 1, 4.5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 2, 4.5 * std::sqrt(20 / count));
}

}  // namespace
}  // namespace heaptap
