// SPDX-License-Identifier: Apache-2.0
//
// Keeps the CPU time of all probes within a budget (budget.h): makes the samples of the costliest targets rarer.
// Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TARGETS_RATES_H_
#define HEAPTAP_USERSPACE_TARGETS_RATES_H_

#include <cstdint>
#include <set>

#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/targets/controls.h"
#include "userspace/targets/target_table.h"

namespace heaptap::recording {

class Rates {
 public:
  // Both must outlive this object.
  Rates(TargetTable& targets, Controls& controls) : targets_(targets), controls_(controls) {}

  // To be called every second, after the costs of the targets were read. `budget`: a share of one core; 0: no bound.
  void Keep(base::Instant now, double budget);

 private:
  void Say(base::Instant now);

  TargetTable& targets_;
  Controls& controls_;
  std::set<uint64_t> changes_;  // process ids whose change of rate is not reported yet
  base::Instant reported_ = base::Instant::InfinitePast();
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_RATES_H_
