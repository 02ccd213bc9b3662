// SPDX-License-Identifier: Apache-2.0
//
// What grew between two profiles of one process, by call path, for people and for programs.
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
  // All call paths whose live estimates changed, what grew most first.
  profile::Profile difference;
};

enum class SortBy { kBytes, kObjects };

// FailedPrecondition: the profiles have mappings, but no common one, so they are of two processes, and addresses of one
// mean nothing in the other.
absl::Status CheckSameProcess(const profile::Profile& before, const profile::Profile& after);

Growth FindGrowth(const profile::Profile& before, const profile::Profile& after, SortBy sort_by);

// Of the first `top` call paths: the addresses of their calls, to be named.
std::vector<uint64_t> CallAddresses(const Growth& growth, size_t top);

// The totals in a line, and the first `top` call paths, a line for each function.
std::string GrowthText(const Growth& growth, size_t top, const exporter::FindSourceFrames& find);
// The same as a JSON document.
std::string GrowthJson(const Growth& growth, size_t top, const exporter::FindSourceFrames& find);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_GROWTH_H_
