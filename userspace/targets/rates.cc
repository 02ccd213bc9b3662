// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/rates.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/messages.h"
#include "userspace/targets/budget.h"

namespace heaptap::recording {
namespace {

// The least time that a process keeps its rate after the budget has made its samples rarer.
constexpr absl::Duration kBudgetRest = absl::Seconds(10);

// The pause between two messages about rates.
constexpr absl::Duration kBudgetPause = absl::Minutes(1);

}  // namespace

void Rates::Keep(base::Instant now, double budget) {
  if (budget <= 0) return;
  std::vector<Target*> targets;
  std::vector<Cost> costs;
  for (auto& [process_id, target] : targets_) {
    // The rate of these processes cannot be set.
    if (target.ending.has_value() || target.image->control_address == 0) continue;
    if (target.control->is_foreign || target.control->is_unwritten) continue;
    targets.push_back(&target);
    costs.push_back({.share = target.books->cost, .raised = target.control->raised});
  }
  const std::vector<uint32_t> steps = recording::KeepBudget(costs, budget);
  for (size_t i = 0; i < targets.size(); i++) {
    Target& target = *targets[i];
    const uint32_t raised = target.control->raised;
    if (steps[i] == raised) continue;
    // The rate must not follow each burst of allocations.
    if (steps[i] < raised && now - target.control->raised_at < kBudgetRest) continue;
    controls_.Raise(target, steps[i], now);
    changes_.insert(target.process_id);
  }
  Say(now);
}

// Prints at most one line per kBudgetPause.
void Rates::Say(base::Instant now) {
  std::erase_if(changes_, [&](uint64_t process_id) { return targets_.Find(process_id) == nullptr; });
  if (changes_.empty() || now - reported_ < kBudgetPause) return;
  reported_ = now;
  const auto raised = [&](uint64_t process_id) { return targets_.Find(process_id)->control->raised; };
  // The process with the rarest samples stands for all.
  const uint64_t first = *std::max_element(changes_.begin(), changes_.end(),
                                           [&](uint64_t a, uint64_t b) { return raised(a) < raised(b); });
  const Target& target = *targets_.Find(first);
  const double samples_a_minute = std::ldexp(target.books->allocation_rate * 60, -static_cast<int>(target.LgSample()));
  std::string line = absl::StrCat(
      "process ", target.pid, " (", target.name, ") is now sampled every 2^", target.LgSample(),
      " bytes: ", target.control->raised == 0 ? "its cost is within the budget again" : "recording exceeds the budget");
  if (target.control->raised != 0 && samples_a_minute < 1)
    absl::StrAppend(&line, "; at this rate it gets less than one sample per minute");
  if (const size_t others = changes_.size() - 1; others != 0) {
    absl::StrAppend(&line, "; the rates of ", others, others == 1 ? " other process" : " other processes",
                    " changed too");
  }
  base::Say(line);
  changes_.clear();
}

}  // namespace heaptap::recording
