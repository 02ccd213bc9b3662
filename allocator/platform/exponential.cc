// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/exponential.h"

#include <array>

#include "allocator/platform/mathematics.h"

namespace heaptap {
namespace exponential_internal {
namespace {

constexpr double Curve(double x) { return 1 - OneMinusExp(x); }

// Where the tail begins: with this number, and no other, the layers end at the height of the curve, 1.
constexpr double kTail = 7.69711747013104972;
// The area of each layer. For the lowest layer, this is the area of the rectangle and of the tail, which is
// Curve(kTail).
constexpr double kArea = (kTail + 1) * Curve(kTail);

constexpr double HeightAbove(double edge) { return Curve(edge) + kArea / edge; }

constexpr std::array<double, kLayers + 1> MakeEdges() {
  std::array<double, kLayers + 1> edges{};
  edges[0] = kArea / Curve(kTail);
  edges[1] = kTail;
  for (unsigned i = 2; i < kLayers; i++) edges[i] = -Logarithm(HeightAbove(edges[i - 1]));
  edges[kLayers] = 0;
  return edges;
}

}  // namespace

constexpr std::array<double, kLayers + 1> kEdges = MakeEdges();
static_assert(HeightAbove(kEdges[kLayers - 1]) > 1 - 1e-11 && HeightAbove(kEdges[kLayers - 1]) < 1 + 1e-11);

double DrawNearCurve(Random* random, unsigned layer, double x) {
  // The law has no memory, so the tail is the whole curve again.
  if (layer == 0) return kTail + DrawExponential(random);
  const double height = Curve(kEdges[layer]) + random->NextUnit() * (kArea / kEdges[layer]);
  return height <= Curve(x) ? x : DrawExponential(random);
}

}  // namespace exponential_internal
}  // namespace heaptap
