// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_USERSPACE_PROFILE_SNAPSHOT_H_
#define HEAPTAP_USERSPACE_PROFILE_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "userspace/profile/coverage.h"
#include "userspace/profile/profile.h"

namespace heaptap::profile {

// The profile of a process at one moment, with contexts as in dumps and without build-ids.
struct Snapshot {
  Profile profile;
  uint64_t process_id = 0;
  std::string executable = {};
  absl::Time time = {};
  std::vector<CoveragePart> coverage = {};  // of a detailed one; empty: unknown
};

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_SNAPSHOT_H_
