// SPDX-License-Identifier: Apache-2.0
//
// Selects the call paths that a view sums, and the frames of these paths that it shows. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_SELECTION_H_
#define HEAPTAP_USERSPACE_REPORT_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/report/named_profile.h"

namespace heaptap::report {

// Regular expressions (RE2) for names of functions, files ("file:line") and libraries; "": no filter.
struct Filters {
  std::string focus = {};   // keep only paths with a frame that matches
  std::string ignore = {};  // leave out paths with a frame that matches
  std::string hide = {};    // leave frames that match out of their paths
  std::string show = {};    // keep only frames that match
  // Leave out frames that only pass an allocation on (IsPlumbing) or start a thread (IsStart). A path without other
  // frames keeps them.
  bool fold = false;
};

// The paths that the filters keep, with the frames that they keep. InvalidArgument: an expression is wrong; the message
// names it by its option.
absl::StatusOr<std::vector<Path>> Select(const NamedProfile& profile, const Filters& filters);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_SELECTION_H_
