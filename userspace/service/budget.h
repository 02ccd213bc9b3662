// SPDX-License-Identifier: Apache-2.0
//
// What recording may cost: who must be sampled more sparsely, and who may be sampled more densely again.
//
// The cost of a process is the share of one core that its probes take in the kernel. One step doubles the mean bytes
// between samples, and so halves the number of samples. The weight of each sample says at which rate it was taken, so
// estimates stay true through all changes.
#ifndef HEAPTAP_USERSPACE_SERVICE_BUDGET_H_
#define HEAPTAP_USERSPACE_SERVICE_BUDGET_H_

#include <cstdint>
#include <vector>

namespace heaptap::service {

// Nanoseconds of the trap itself, on either probe, which no program can measure: the bare uprobe of a nop takes 0.67 us
// with Linux 6.18 on a virtual machine.
inline constexpr uint64_t kTrapNanoseconds = 700;

struct Cost {
  double share = 0;     // of a core, over the last seconds
  uint32_t raised = 0;  // steps so far
};

// The steps that each process shall have: while all together cost more than `budget`, the most expensive one takes
// another step; where all cost less than a quarter of it, the cheapest ones that were raised go back by one. So a
// process is not moved up and down in turn. Those whom no number of steps makes cheaper (they fire probes at will) do
// not count once they have had them all: others must not pay for them.
std::vector<uint32_t> KeepBudget(const std::vector<Cost>& costs, double budget);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_BUDGET_H_
