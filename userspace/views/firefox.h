// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --firefox`: a profile for the Firefox Profiler (profiler.firefox.com), which shows call trees and
// flame graphs of native allocations in a browser.
//
// Format: the processed profile format, version 48 (github.com/firefox-devtools/profiler, docs-developer); later
// versions of the profiler upgrade it. Each call path is an allocation of its live memory, and another allocation, with
// its deallocation, of its freed memory. So "Retained Memory" shows the live memory, "Allocated Memory" the allocated
// memory, and "Deallocated Memory" the freed memory. The format has bytes only. The addresses and times of these
// allocations are invented, because a profile has only sums.
#ifndef HEAPTAP_USERSPACE_VIEWS_FIREFOX_H_
#define HEAPTAP_USERSPACE_VIEWS_FIREFOX_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/summary_text.h"

namespace heaptap::report {

// `pid`: 0 if it is unknown. In a difference, shrinkage is left out. Thread-safe; takes linear time.
std::string Firefox(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, uint64_t pid);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_FIREFOX_H_
