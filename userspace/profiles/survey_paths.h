// SPDX-License-Identifier: Apache-2.0
//
// Reads the call paths of a survey from the kernel's tallies.
#ifndef HEAPTAP_USERSPACE_PROFILES_SURVEY_PATHS_H_
#define HEAPTAP_USERSPACE_PROFILES_SURVEY_PATHS_H_

#include "absl/status/status.h"
#include "userspace/bpf/entries.h"
#include "userspace/profile/survey.h"

namespace heaptap::recording {

// Fills in what the changed processes of `survey` allocated, and their stacks. Reads the tallies of all processes:
// 200,000 of them take 70 ms. Thread-safe, so that the recording's thread need not wait.
//
// The books may change meanwhile. A process that ends may have a part of its stacks: ask Surveys::ForgetEnded. The
// tallies of a thread that has ended may count twice or not at all if they are folded; none of them has live objects.
absl::Status ReadPaths(const bpf::Entries& entries, profile::Survey& survey);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_SURVEY_PATHS_H_
