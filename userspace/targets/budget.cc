// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/budget.h"

#include <algorithm>
#include <cstddef>

namespace heaptap::recording {
namespace {

// Beyond this, samples are at least 2^40 bytes apart: practically none.
constexpr uint32_t kMaxSteps = 40;

constexpr double kLowWater = 0.25;

}  // namespace

std::vector<uint32_t> KeepBudget(const std::vector<Cost>& costs, double budget) {
  std::vector<uint32_t> steps;
  std::vector<double> shares;  // the part of each cost that further steps can reduce
  double sum = 0;
  for (const Cost& cost : costs) {
    steps.push_back(cost.raised);
    shares.push_back(cost.raised < kMaxSteps ? cost.share : 0);
    sum += shares.back();
  }
  if (sum > budget) {
    while (sum > budget) {
      const size_t most = std::max_element(shares.begin(), shares.end()) - shares.begin();
      if (shares[most] <= 0) break;
      steps[most]++;
      const double less = steps[most] < kMaxSteps ? shares[most] / 2 : shares[most];
      sum -= less;
      shares[most] -= less;
    }
    return steps;
  }
  // One step back doubles a process's cost.
  std::vector<size_t> raised;
  for (size_t i = 0; i < costs.size(); i++) {
    if (steps[i] > 0) raised.push_back(i);
  }
  std::sort(raised.begin(), raised.end(), [&](size_t a, size_t b) { return costs[a].share < costs[b].share; });
  for (const size_t i : raised) {
    if (sum + costs[i].share > budget * kLowWater * 2 || sum > budget * kLowWater) break;
    sum += costs[i].share;
    steps[i]--;
  }
  return steps;
}

}  // namespace heaptap::recording
