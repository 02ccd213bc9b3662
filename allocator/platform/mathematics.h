// SPDX-License-Identifier: Apache-2.0
//
// The two mathematical functions that sampling needs: the library links with libc only, without libm. The compiler can
// evaluate them for tables.
// Pure; any thread, any time. Relative error at most 1e-12.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_MATHEMATICS_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_MATHEMATICS_H_

#include <stdint.h>

#include <bit>

#include "allocator/platform/assert.h"

namespace heaptap {
namespace mathematics_internal {

inline constexpr double kLn2 = 0.693147180559945309417232121458;
inline constexpr double kSqrtHalf = 0.707106781186547524400844362105;

}  // namespace mathematics_internal

// The natural logarithm. REQUIRES: x is finite, normal and positive.
constexpr double Logarithm(double x) {
  HEAPTAP_ASSERT(x >= __DBL_MIN__ && x <= __DBL_MAX__);
  // x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)); ln(m) = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1022;
  double mantissa = std::bit_cast<double>((bits & 0x000f'ffff'ffff'ffff) | 0x3fe0'0000'0000'0000);
  if (mantissa < mathematics_internal::kSqrtHalf) {
    mantissa *= 2;
    exponent--;
  }
  double s = (mantissa - 1) / (mantissa + 1);
  double square = s * s;
  double sum = 0;
  // Unrolled so that the quotients are constants.
#pragma GCC unroll 11
  for (int k = 21; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return static_cast<double>(exponent) * mathematics_internal::kLn2 + 2 * s * sum;
}

// 1 - exp(-x), accurate for small x too. REQUIRES: x >= 0.
constexpr double OneMinusExp(double x) {
  HEAPTAP_ASSERT(x >= 0);
  if (x > 40) return 1;  // exp(-40) is below half a unit in the last place of 1
  // exp(-x) = 2^-k exp(-r) with |r| <= ln(2)/2. The series of 1 - exp(-r) loses no digits where x is small.
  int64_t k = static_cast<int64_t>(x / mathematics_internal::kLn2 + 0.5);
  double r = x - static_cast<double>(k) * mathematics_internal::kLn2;
  double sum = 0;
  for (int n = 16; n >= 1; n--) sum = (1 - sum) * r / n;
  if (k == 0) return sum;
  double scale = std::bit_cast<double>(static_cast<uint64_t>(1023 - k) << 52);
  return 1 - scale * (1 - sum);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_MATHEMATICS_H_
