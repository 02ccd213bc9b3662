// SPDX-License-Identifier: Apache-2.0
#include "userspace/profiles/profile_plan.h"

#include <utility>
#include <vector>

#include "userspace/base/clock.h"

namespace heaptap::recording {

absl::StatusOr<BuiltProfile> BuildPlanned(const bpf::Entries& entries, const ProfilePlan& plan,
                                          const LiveBlocks* blocks) {
  absl::StatusOr<OwnTallies> own = ReadOwnTallies(entries, plan.process.process_id);
  if (!own.ok()) return own.status();
  const base::Instant begin = base::Now();
  BuiltProfile built = {.profile =
                            BuildProfile(entries, plan.subject, std::move(own->tallies), plan.mappings_lost, blocks)};
  built.cost = own->cost + (base::Now() - begin);
  return built;
}

}  // namespace heaptap::recording
