// SPDX-License-Identifier: Apache-2.0
//
// A profile for the page (userspace/web/): names and call paths in columns of numbers, because a hundred thousand paths
// as objects would be slow to send and to read.
//
// Format: JSON with the members of `Profile` in userspace/web/profile.ts. Stacks are a prefix tree: an entry has the
// number of its caller's entry, -1 for the outermost, and of its frame. A difference has columns for the memory that
// was live before, and must have unchanged paths too, because the page shows changes in percent.
#ifndef HEAPTAP_USERSPACE_VIEWS_PAGE_DATA_H_
#define HEAPTAP_USERSPACE_VIEWS_PAGE_DATA_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/profile/profile.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/summary_text.h"

namespace heaptap::report {

struct PageOptions {
  std::optional<pid_t> pid = {};        // of a running process
  std::optional<absl::Time> time = {};  // of the profile
  // A profile with a context for each of the paths, in their order, for the shares of threads, sizes and ages; null:
  // without shares.
  const profile::Profile* shares = nullptr;
  bool source_paths = true;  // else folders of source files and libraries are left out
};

// Thread-safe; takes linear time.
std::string PageData(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject,
                     const PageOptions& options);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_PAGE_DATA_H_
