// SPDX-License-Identifier: Apache-2.0
//
// Finds and prints what grew between two profiles of one process, by call path.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_CLI_GROWTH_H_
#define HEAPTAP_USERSPACE_CLI_GROWTH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/export/source_frames.h"
#include "userspace/profile/profile.h"

namespace heaptap::cli {

struct Growth {
  profile::Estimate before;
  profile::Estimate after;
  // All call paths whose live estimates changed, the largest growth first.
  profile::Profile difference;
};

enum class SortBy { kBytes, kObjects };

// FailedPrecondition: both profiles have mappings, but none in common, so they belong to different processes and their
// addresses cannot be compared.
absl::Status CheckSameProcess(const profile::Profile& before, const profile::Profile& after);

Growth FindGrowth(const profile::Profile& before, const profile::Profile& after, SortBy sort_by);

// The call addresses of the first `top` call paths, for symbol lookup.
std::vector<uint64_t> CallAddresses(const Growth& growth, size_t top);

// A line with the totals, and the first `top` call paths with a line for each function.
std::string GrowthText(const Growth& growth, size_t top, const exporter::FindSourceFrames& find);
// The same as a JSON document.
std::string GrowthJson(const Growth& growth, size_t top, const exporter::FindSourceFrames& find);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_GROWTH_H_
