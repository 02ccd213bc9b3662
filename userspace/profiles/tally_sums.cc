// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/tally_sums.h"

#include "absl/container/flat_hash_set.h"

namespace heaptap::recording {
namespace {

// The tallies of one process.
struct Sum {
  TallySums sums;
  absl::flat_hash_set<uint64_t> stacks;

  void Add(const bpf::TallyEntry& entry) {
    sums.live += profile::LiveEstimate(entry.tally);
    sums.allocated += profile::ToEstimate(entry.tally.allocated);
    stacks.insert(entry.stack_id);
  }

  TallySums Total() const {
    TallySums total = sums;
    total.contexts = stacks.size();
    return total;
  }
};

}  // namespace

TallySums SumTallies(const std::vector<bpf::TallyEntry>& tallies) {
  Sum sum;
  for (const bpf::TallyEntry& entry : tallies) sum.Add(entry);
  return sum.Total();
}

absl::StatusOr<absl::flat_hash_map<uint64_t, TallySums>> SumAllTallies(const bpf::Entries& entries) {
  absl::flat_hash_map<uint64_t, Sum> processes;
  absl::Status status = entries.VisitTallies(
      [&](uint64_t process_id, const bpf::TallyEntry& entry) { processes[process_id].Add(entry); });
  if (!status.ok()) return status;
  absl::flat_hash_map<uint64_t, TallySums> totals;
  for (const auto& [process_id, sum] : processes) totals.emplace(process_id, sum.Total());
  return totals;
}

}  // namespace heaptap::recording
