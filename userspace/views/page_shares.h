// SPDX-License-Identifier: Apache-2.0
//
// How the memory of each path divides among threads, sizes and ages, for the page.
//
// Format: the members `threads` and `blocks` of `Profile` in userspace/web/profile.ts. Thread-safe.
#ifndef HEAPTAP_USERSPACE_VIEWS_PAGE_SHARES_H_
#define HEAPTAP_USERSPACE_VIEWS_PAGE_SHARES_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "userspace/profile/profile.h"

namespace heaptap::report {

// The shares as further members of a JSON object, each after a comma. A path has the number of its context.
// `number_of`: the number of a text. `threads` is missing if the profile does not tell threads apart, and `blocks` if
// it has no blocks.
std::string PageShares(const profile::Profile& profile, absl::FunctionRef<int64_t(std::string)> number_of);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_PAGE_SHARES_H_
