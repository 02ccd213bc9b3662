// SPDX-License-Identifier: Apache-2.0
//
// How live memory changed between two points of a timeline. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_LIVE_CHANGE_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_LIVE_CHANGE_H_

#include <cstddef>
#include <vector>

#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/history/moment_profile.h"
#include "userspace/history/timeline_data.h"
#include "userspace/profile/profile.h"
#include "userspace/report/measure.h"

namespace heaptap::cli {

struct LiveChange {
  profile::Profile difference = {};             // by call path
  std::vector<report::Measures> measures = {};  // of each of its contexts
  report::Measure total = {};
  formats::Symbols symbols = {};  // of its addresses
};

// From the point `before` to the point `after`, with the error that sampling causes. Samples that both points have add
// nothing to the error (report/changes.h).
LiveChange FindLiveChange(const history::Timeline& timeline, size_t before, size_t after);

// What is live at a point.
report::Measure FindLive(const history::Timeline& timeline, size_t point);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_LIVE_CHANGE_H_
