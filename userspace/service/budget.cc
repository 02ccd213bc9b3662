// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/budget.h"

#include <algorithm>
#include <cstddef>

namespace heaptap::service {
namespace {

// Beyond this a process has no samples to speak of: 2^40 bytes apart, from any rate.
constexpr uint32_t kMostSteps = 40;

constexpr double kLowWater = 0.25;

}  // namespace

std::vector<uint32_t> KeepBudget(const std::vector<Cost>& costs, double budget) {
  std::vector<uint32_t> steps;
  std::vector<double> shares;
  double sum = 0;
  for (const Cost& cost : costs) {
    steps.push_back(cost.raised);
    shares.push_back(cost.share);
    sum += cost.share;
  }
  if (sum > budget) {
    while (sum > budget) {
      const size_t most = std::max_element(shares.begin(), shares.end()) - shares.begin();
      if (steps[most] >= kMostSteps || shares[most] <= 0) break;
      sum -= shares[most] / 2;
      shares[most] /= 2;
      steps[most]++;
    }
    return steps;
  }
  // One step back doubles what it costs.
  std::vector<size_t> raised;
  for (size_t i = 0; i < costs.size(); i++) {
    if (steps[i] > 0) raised.push_back(i);
  }
  std::sort(raised.begin(), raised.end(), [&](size_t a, size_t b) { return shares[a] < shares[b]; });
  for (const size_t i : raised) {
    if (sum + shares[i] > budget * kLowWater * 2 || sum > budget * kLowWater) break;
    sum += shares[i];
    steps[i]--;
  }
  return steps;
}

}  // namespace heaptap::service
