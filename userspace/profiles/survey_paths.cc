// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/survey_paths.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/profile/estimate.h"

namespace heaptap::recording {
namespace {

// Adds up the shares of threads in the same stack.
void MergeThreads(std::vector<profile::StackShare>& shares) {
  std::sort(shares.begin(), shares.end(),
            [](const profile::StackShare& a, const profile::StackShare& b) { return a.stack_id < b.stack_id; });
  size_t kept = 0;
  for (size_t i = 0; i < shares.size(); i++) {
    if (kept == 0 || shares[kept - 1].stack_id != shares[i].stack_id) {
      shares[kept++] = shares[i];
      continue;
    }
    profile::StackShare& sum = shares[kept - 1];
    sum.live_bytes += shares[i].live_bytes;
    sum.live_objects += shares[i].live_objects;
    sum.samples += shares[i].samples;
    sum.allocated_samples += shares[i].allocated_samples;
    sum.live_variance += shares[i].live_variance;
  }
  shares.resize(kept);
}

}  // namespace

absl::Status ReadPaths(const bpf::Entries& entries, profile::Survey& survey) {
  absl::flat_hash_map<uint64_t, profile::SurveyedProcess*> by_id;
  for (profile::SurveyedProcess& process : survey.processes) {
    if (process.is_changed) by_id[process.ref.process_id] = &process;
  }
  if (by_id.empty()) return absl::OkStatus();
  absl::Status status = entries.VisitTallies([&](uint64_t process_id, const bpf::TallyEntry& entry) {
    const auto found = by_id.find(process_id);
    if (found == by_id.end()) return;
    profile::SurveyedProcess& process = *found->second;
    process.allocated_bytes += profile::ToEstimate(entry.tally.allocated).bytes;
    const profile::Estimate live = profile::LiveEstimate(entry.tally);
    // A thread that has freed all its samples of a stack still counts in the allocated samples.
    process.stacks.push_back(
        {entry.stack_id, live.bytes, live.objects, live.samples, entry.tally.allocated.objects, live.variance});
  });
  if (!status.ok()) return status;
  for (const auto& [process_id, process] : by_id) {
    MergeThreads(process->stacks);
    std::erase_if(process->stacks, [](const profile::StackShare& stack) { return stack.samples == 0; });
  }
  return absl::OkStatus();
}

}  // namespace heaptap::recording
