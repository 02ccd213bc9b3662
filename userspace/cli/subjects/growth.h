// SPDX-License-Identifier: Apache-2.0
//
// What changed between two profiles, by call path. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_GROWTH_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_GROWTH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "userspace/profile/difference.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"
#include "userspace/report/measure.h"
#include "userspace/report/rows.h"
#include "userspace/report/summary_text.h"

namespace heaptap::cli {

struct Growth {
  profile::Estimate before;  // live
  profile::Estimate after;
  profile::Profile difference;
  std::vector<report::Measures> measures;  // of each context of the difference, with the error of the change
};

// False: both profiles have mappings, but most of the files that both have are at other addresses, or one file was
// built anew. Such profiles belong to different processes, and their addresses cannot be compared. A program without
// ASLR has the same addresses in all of its processes: such processes can be compared, as far as they are of one build.
bool IsSameProcess(const profile::Profile& before, const profile::Profile& after);

// REQUIRES: the same address means the same in both.
Growth FindGrowth(const profile::Profile& before, const profile::Profile& after,
                  profile::Unchanged unchanged = profile::Unchanged::kLeaveOut);

// The subject of a report on a difference.
report::Subject ToSubject(const Growth& growth, std::string name);

// The totals and the first `top` call paths whose live estimates changed, the largest growth first; 0: all.
std::string GrowthJson(const Growth& growth, size_t top, report::Unit sort_by, const profile::FindSourceFrames& find);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_GROWTH_H_
