// SPDX-License-Identifier: Apache-2.0
//
// The two mathematical functions that sampling needs: the library links with libc only, without libm.
// Pure; any thread, any time. Relative error at most 1e-12.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_MATHEMATICS_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_MATHEMATICS_H_

namespace heaptap {

// The natural logarithm. REQUIRES: x is finite, normal and positive.
double Logarithm(double x);

// 1 - exp(-x), accurate for small x too. REQUIRES: x >= 0.
double OneMinusExp(double x);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_MATHEMATICS_H_
