// SPDX-License-Identifier: Apache-2.0
//
// The error of a difference between two profiles, of one process at two moments or of two processes.
//
// In profiles of one process, objects that are live in both are the same samples, so they add no error. The error comes
// from the samples that appeared and from those that disappeared in between. A profile does not name its samples: at
// most as many of the later live samples are new as samples were allocated in between, and at most as many of the
// earlier ones are gone as samples were freed; and likewise for their variances, which are summed. So the error is
// never too small for that reason. Moments of the history tell only the number of samples that were allocated; there,
// samples that disappeared count like the average of those that were live before. Where a path has no count of
// allocations (jemalloc without prof_accum), all its samples may have changed.
//
// Profiles of different processes have no sample in common: each sample adds to the error. A profile that does not say
// its process (`pid` 0) is taken for one of the same process if it has the same period.
#ifndef HEAPTAP_USERSPACE_REPORT_CHANGES_H_
#define HEAPTAP_USERSPACE_REPORT_CHANGES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "userspace/profile/profile.h"
#include "userspace/report/measure.h"

namespace heaptap::report {

// The measures of each context of Difference(after, before), in its order. The live `samples` are an upper bound of
// those that appeared or disappeared; an unchanged context has none. Thread-safe; takes linear time.
std::vector<Measures> ChangesOf(const profile::Profile& difference, const profile::Profile& after,
                                const profile::Profile& before);

// The samples that a call path has allocated so far, live or freed.
struct Allocated {
  uint64_t samples = 0;                 // 0: unknown
  std::optional<double> variance = {};  // none: only their number is known
};

// The change of the live memory of one path. `have_common`: both can have samples in common. Thread-safe.
Measure LiveChange(const Measure& after, const Measure& before, const Allocated& allocated_after,
                   const Allocated& allocated_before, bool have_common);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_CHANGES_H_
