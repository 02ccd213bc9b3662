// SPDX-License-Identifier: Apache-2.0
//
// Keeps the cost of recording within a budget: which processes are sampled more sparsely, and which more densely again.
//
// The cost of a process is the share of one core that its probes take in the kernel. One step doubles the mean bytes
// between samples, and so halves the number of samples. Each sample's weight reflects the rate at which it was taken,
// so estimates stay unbiased across changes.
#ifndef HEAPTAP_USERSPACE_TARGETS_BUDGET_H_
#define HEAPTAP_USERSPACE_TARGETS_BUDGET_H_

#include <cstdint>
#include <vector>

namespace heaptap::recording {

// The trap itself, which the eBPF programs cannot measure: a bare uprobe on a nop takes 0.67 us with Linux 6.18 on a
// virtual machine.
inline constexpr uint64_t kTrapNanoseconds = 700;

struct Cost {
  double share = 0;     // of a core, over the last seconds
  uint32_t raised = 0;  // steps so far
};

// The new number of steps of each process. While the total cost exceeds `budget`, the most expensive process takes
// another step. While it is below a quarter of `budget`, the cheapest raised processes go back by one step. The gap
// between the two bounds keeps processes from oscillating. A process that stays expensive (it can fire probes at will)
// no longer counts once it has taken all steps: others must not pay for it.
std::vector<uint32_t> KeepBudget(const std::vector<Cost>& costs, double budget);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_BUDGET_H_
