// SPDX-License-Identifier: Apache-2.0
//
// The difference of two profiles of one process.
#ifndef HEAPTAP_USERSPACE_PROFILE_DIFFERENCE_H_
#define HEAPTAP_USERSPACE_PROFILE_DIFFERENCE_H_

#include "userspace/profile/profile.h"

namespace heaptap::profile {

// `after` minus `before`: contexts are matched by their frames, shares by thread.
//
// Live estimates are negative where more was freed than allocated: readers of differences expect that, and growth must
// be weighed against shrinkage. There the number of samples, which cannot be negative, is 0. Allocated estimates are
// the bytes and objects allocated in between, never negative, because readers take them for counters. Where `after` has
// fewer samples than `before`, its books were begun anew, and it counts in full.
//
// Unchanged shares are left out. Unchanged contexts are left out too, or kept without shares if they are wanted.
// Threads and mappings of both profiles are kept; everything else comes from `after`. Formats without signs show only
// growth. Takes linear time. Thread-safe.
enum class Unchanged { kLeaveOut, kKeep };
Profile Difference(const Profile& after, const Profile& before, Unchanged unchanged = Unchanged::kLeaveOut);

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_DIFFERENCE_H_
