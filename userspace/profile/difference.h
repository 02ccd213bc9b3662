// SPDX-License-Identifier: Apache-2.0
//
// What happened between two profiles of one process.
#ifndef HEAPTAP_USERSPACE_PROFILE_DIFFERENCE_H_
#define HEAPTAP_USERSPACE_PROFILE_DIFFERENCE_H_

#include "userspace/profile/profile.h"

namespace heaptap::profile {

// `after` less `before`, two profiles of one process: contexts are matched by their frames, shares by thread.
//
// Live estimates are differences, negative where more was freed than allocated: readers of profiles that are
// differences expect it, and growth is to be weighed against what shrank. Their samples, which cannot be negative, are
// 0 there. Allocated estimates are what was allocated in between, never negative: they are counters to those readers.
// Where `after` has fewer samples than `before` its books were opened anew, and it counts as it is.
//
// Shares and contexts in which nothing changed are left out. The rest is `after`'s; threads and mappings that only
// `before` knows are kept. Formats without a sign show what grew. Takes linear time. Thread-safe.
Profile Difference(const Profile& after, const Profile& before);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_DIFFERENCE_H_
