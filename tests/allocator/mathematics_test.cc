// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/mathematics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "allocator/platform/random.h"

namespace heaptap {
namespace {

constexpr double kBound = 1e-12;

double RelativeError(double value, double expected) {
  return expected == 0 ? std::fabs(value) : std::fabs(value / expected - 1);
}

TEST(Mathematics, LogarithmOfTheSamplersNumbers) {
  Random random;
  random.Seed(1, 1);
  for (int i = 0; i < 1000000; i++) {
    double u = random.NextUnit();
    ASSERT_GT(u, 0);
    ASSERT_LE(u, 1);
    ASSERT_LE(RelativeError(Logarithm(u), std::log(u)), kBound) << u;
  }
}

TEST(Mathematics, LogarithmAtTheEnds) {
  EXPECT_EQ(Logarithm(1), 0);
  for (double x : {0x1p-53, 0x1p-52, 0.5, 0.70710678118654746, 0.70710678118654757, 1 - 0x1p-53, 1 - 0x1p-30,
                   1 + 0x1p-52, 1.4142135623730949, 2.0, 1e300, 1e-300}) {
    EXPECT_LE(RelativeError(Logarithm(x), std::log(x)), kBound) << x;
  }
}

TEST(Mathematics, OneMinusExpFromTinyToLarge) {
  EXPECT_EQ(OneMinusExp(0), 0);
  for (double x = 1e-20; x < 1e20; x *= 1.0137) {
    ASSERT_LE(RelativeError(OneMinusExp(x), -std::expm1(-x)), kBound) << x;
  }
  for (double x = 0; x < 45; x += 0.00071) {
    ASSERT_LE(RelativeError(OneMinusExp(x), -std::expm1(-x)), kBound) << x;
  }
}

}  // namespace
}  // namespace heaptap
