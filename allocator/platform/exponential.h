// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of the exponential law with mean 1, by Marsaglia and Tsang's ziggurat (Journal of Statistical Software
// 5.8, 2000). They take a third of the instructions of a logarithm.
//
// The area under exp(-x) is covered by layers of equal area, each a rectangle from x = 0 to its edge. A random point of
// a random layer has the exponential law's x if it lies under the curve, which is certain left of the edge of the layer
// above. Only the other points, one in 45, need the curve itself. The lowest layer is a rectangle and the tail beside
// it, and its edge is the edge of a rectangle with the same area.
//
// Exact but for the rounding of double: the law of x has no other error. Like Random, not thread safe.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_EXPONENTIAL_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_EXPONENTIAL_H_

#include <stdint.h>

#include <array>

#include "allocator/platform/random.h"

namespace heaptap {
namespace exponential_internal {

inline constexpr unsigned kLayers = 256;

// The edges of the layers from the lowest to the highest, and 0 for the one above.
extern const std::array<double, kLayers + 1> kEdges;

// For a point of the layer that may lie above the curve: `x`, or a number drawn anew.
double DrawNearCurve(Random* random, unsigned layer, double x);

}  // namespace exponential_internal

// A random number of this law, greater than 0.
inline double DrawExponential(Random* random) {
  using namespace exponential_internal;  // NOLINT: of this function alone
  const uint64_t bits = random->Next();
  // The low bits, which the unit does not use.
  const unsigned layer = bits % kLayers;
  const double x = Random::UnitOf(bits) * kEdges[layer];
  if (__builtin_expect(x < kEdges[layer + 1], 1)) return x;
  return DrawNearCurve(random, layer, x);
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_EXPONENTIAL_H_
