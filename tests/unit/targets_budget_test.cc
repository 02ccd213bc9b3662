// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "userspace/targets/budget.h"

namespace heaptap::recording {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kBudget = 0.02;
constexpr int kRounds = 100;

// Processes whose samples halve with every step, if they obey.
class Machine {
 public:
  explicit Machine(std::vector<double> demands) : demands_(std::move(demands)), steps_(demands_.size()) {}

  void SetDemand(size_t process, double demand) { demands_[process] = demand; }
  // Fires probes at any rate.
  void SetUnruly(size_t process) { unruly_ = process; }

  double Share(size_t process) const {
    return process == unruly_ ? demands_[process] : std::ldexp(demands_[process], -static_cast<int>(steps_[process]));
  }
  double Sum() const {
    double sum = 0;
    for (size_t i = 0; i < demands_.size(); i++) sum += Share(i);
    return sum;
  }
  const std::vector<uint32_t>& steps() const { return steps_; }

  // Returns whether it changed something.
  bool Round() {
    std::vector<Cost> costs;
    for (size_t i = 0; i < demands_.size(); i++) costs.push_back({.share = Share(i), .raised = steps_[i]});
    const std::vector<uint32_t> steps = KeepBudget(costs, kBudget);
    EXPECT_THAT(steps, SizeIs(costs.size()));
    const bool is_new = steps != steps_;
    steps_ = steps;
    return is_new;
  }

 private:
  std::vector<double> demands_;
  std::vector<uint32_t> steps_;
  size_t unruly_ = ~size_t{0};
};

TEST(Budget, OfNobody) { EXPECT_THAT(KeepBudget({}, kBudget), IsEmpty()); }

TEST(Budget, WithinItNothingChanges) {
  EXPECT_THAT(KeepBudget({{.share = 0.01}, {.share = 0.009}, {.share = 0}}, kBudget), ElementsAre(0, 0, 0));
  EXPECT_THAT(KeepBudget({{.share = kBudget}}, kBudget), ElementsAre(0));
  // Between a quarter of the budget and all of it, raised processes stay raised.
  EXPECT_THAT(KeepBudget({{.share = 0.006, .raised = 3}, {.share = 0.001, .raised = 1}}, kBudget), ElementsAre(3, 1));
}

TEST(Budget, TheExpensiveRiseUntilItFits) {
  Machine machine({0.5, 0.001, 0.0001});
  EXPECT_TRUE(machine.Round());
  EXPECT_LE(machine.Sum(), kBudget);
  EXPECT_GT(machine.Sum(), kBudget / 2) << "no further than needed";
  EXPECT_THAT(machine.steps(), ElementsAre(5, 0, 0));
  EXPECT_FALSE(machine.Round());
}

TEST(Budget, OfSeveralTheMostExpensiveRisesFirst) {
  Machine machine({0.08, 0.02, 0.02});
  machine.Round();
  EXPECT_LE(machine.Sum(), kBudget);
  EXPECT_GT(machine.steps()[0], machine.steps()[1]);
  EXPECT_GT(machine.steps()[0], machine.steps()[2]);
}

TEST(Budget, ManyCheapOnesRiseTogether) {
  Machine machine(std::vector<double>(100, 0.001));
  machine.Round();
  EXPECT_LE(machine.Sum(), kBudget);
  const auto [least, most] = std::minmax_element(machine.steps().begin(), machine.steps().end());
  EXPECT_LE(*most - *least, 1u);
}

TEST(Budget, TheyComeBackStepByStepBelowAQuarter) {
  Machine machine({0.5, 0.001});
  machine.Round();
  const uint32_t raised = machine.steps()[0];
  machine.SetDemand(0, kBudget / 8);
  for (uint32_t left = raised; left > 0; left--) {
    EXPECT_TRUE(machine.Round());
    EXPECT_EQ(machine.steps()[0], left - 1);
  }
  EXPECT_FALSE(machine.Round());
  EXPECT_LE(machine.Sum(), kBudget);
}

TEST(Budget, TheCheapestComeBackFirst) {
  // After one the sum is above a quarter.
  EXPECT_THAT(KeepBudget({{.share = 0.0042, .raised = 2}, {.share = 0.0005, .raised = 2}}, kBudget), ElementsAre(2, 1));
}

TEST(Budget, NobodyIsMovedUpAndDown) {
  for (const double demand : {0.001, 0.004, 0.006, 0.01, 0.019, 0.021, 0.03, 0.05, 0.3, 7.0}) {
    for (const size_t processes : {1u, 2u, 3u, 17u}) {
      SCOPED_TRACE(testing::Message() << processes << " processes of " << demand);
      Machine machine(std::vector<double>(processes, demand));
      // Up, then down again from a burst.
      machine.Round();
      machine.Round();  // the sum of the rest may differ by a rounding error
      for (int round = 0; round < kRounds; round++) EXPECT_FALSE(machine.Round());
      EXPECT_LE(machine.Sum(), kBudget);

      for (size_t i = 0; i < processes; i++) machine.SetDemand(i, demand * 1000);
      machine.Round();
      for (size_t i = 0; i < processes; i++) machine.SetDemand(i, demand);
      int last_change = 0;
      std::vector<uint32_t> before = machine.steps();
      for (int round = 0; round < kRounds; round++) {
        if (machine.Round()) last_change = round;
        for (size_t i = 0; i < processes; i++) EXPECT_LE(machine.steps()[i], before[i]) << "only down";
        before = machine.steps();
        EXPECT_LE(machine.Sum(), kBudget);
      }
      EXPECT_LT(last_change, kRounds / 2);
    }
  }
}

// It fires probes at any rate, whatever it is set to.
TEST(Budget, OthersDoNotPayForWhoDoesNotObey) {
  Machine machine({1.0, 0.004, 0.004});
  machine.SetUnruly(0);
  for (int round = 0; round < kRounds; round++) machine.Round();
  EXPECT_FALSE(machine.Round()) << "nothing helps";
  const std::vector<uint32_t> steps = machine.steps();
  EXPECT_GT(steps[0], 20u);
  EXPECT_LE(steps[0], 64u);

  // The others keep to the budget as if it did not exist.
  machine.SetDemand(1, 0.2);
  machine.SetDemand(2, 0.001);
  for (int round = 0; round < kRounds; round++) machine.Round();
  EXPECT_LE(machine.Share(1) + machine.Share(2), kBudget);
  EXPECT_GT(machine.Share(1), kBudget / 8);
  machine.SetDemand(1, 0.001);
  for (int round = 0; round < kRounds; round++) machine.Round();
  EXPECT_EQ(machine.steps()[1], 0u);
  EXPECT_EQ(machine.steps()[2], 0u);
  EXPECT_EQ(machine.steps()[0], steps[0]);
}

TEST(Budget, NoBudgetAtAllEnds) { EXPECT_THAT(KeepBudget({{.share = 1}, {.share = 0.5}}, 0), Each(testing::Gt(20u))); }

}  // namespace
}  // namespace heaptap::recording
