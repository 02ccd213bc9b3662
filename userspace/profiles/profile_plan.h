// SPDX-License-Identifier: Apache-2.0
//
// What a separate thread needs to build the profile of a process while the recording's thread goes on.
#ifndef HEAPTAP_USERSPACE_PROFILES_PROFILE_PLAN_H_
#define HEAPTAP_USERSPACE_PROFILES_PROFILE_PLAN_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/bpf/entries.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/profile.h"
#include "userspace/profiles/live_blocks.h"
#include "userspace/profiles/profile_builder.h"
#include "userspace/spaces/address_spaces.h"

namespace heaptap::recording {

struct ProfilePlan {
  profile::ProcessRef process;
  std::shared_ptr<const AddressSpace> space;  // may be null
  ProfileSubject subject;
  uint64_t mappings_lost = 0;
};

struct BuiltProfile {
  profile::Profile profile;
  // The time that it took, without the time for tallies of other processes, for which the user of this one is not to
  // blame.
  absl::Duration cost = {};
};

// `blocks`: of this process, or null. Thread-safe: also while another thread uses the books.
absl::StatusOr<BuiltProfile> BuildPlanned(const bpf::Entries& entries, const ProfilePlan& plan,
                                          const LiveBlocks* blocks = nullptr);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_PROFILE_PLAN_H_
