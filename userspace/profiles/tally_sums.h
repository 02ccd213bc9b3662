// SPDX-License-Identifier: Apache-2.0
//
// The sums of the tallies of each process. Thread-safe: also while another thread uses the books.
#ifndef HEAPTAP_USERSPACE_PROFILES_TALLY_SUMS_H_
#define HEAPTAP_USERSPACE_PROFILES_TALLY_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "userspace/bpf/entries.h"
#include "userspace/profile/estimate.h"

namespace heaptap::recording {

struct TallySums {
  profile::Estimate live = {};
  profile::Estimate allocated = {};
  size_t contexts = 0;  // different stacks
};

TallySums SumTallies(const std::vector<bpf::TallyEntry>& tallies);

// By process id; without the processes that have no tally. Reads the map of tallies once.
absl::StatusOr<absl::flat_hash_map<uint64_t, TallySums>> SumAllTallies(const bpf::Entries& entries);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_TALLY_SUMS_H_
