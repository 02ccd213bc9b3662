// SPDX-License-Identifier: Apache-2.0
//
// Makes two dumps of different processes comparable. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_SUBJECTS_COMPARABLE_H_
#define HEAPTAP_USERSPACE_CLI_SUBJECTS_COMPARABLE_H_

#include "userspace/cli/subjects/local_names.h"
#include "userspace/cli/subjects/profile_source.h"

namespace heaptap::cli {

// Dumps of the same process stay as they are (IsSameProcess). Dumps of different processes get addresses that mean the
// same in both (report/by_names.h), and a line on stderr says so, besides the lines about missing names.
void MakeComparable(Dump& before, Dump& after, const NamePlaces& places);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_SUBJECTS_COMPARABLE_H_
