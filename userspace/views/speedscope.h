// SPDX-License-Identifier: Apache-2.0
//
// A profile for speedscope (speedscope.app), which shows flame graphs in a browser.
//
// Format: https://www.speedscope.app/file-format-schema.json, with one sampled profile for each measure: live bytes,
// live objects, allocated bytes, allocated objects.
#ifndef HEAPTAP_USERSPACE_VIEWS_SPEEDSCOPE_H_
#define HEAPTAP_USERSPACE_VIEWS_SPEEDSCOPE_H_

#include <string>

#include "absl/types/span.h"
#include "userspace/report/named_profile.h"
#include "userspace/report/summary_text.h"

namespace heaptap::report {

// Negative values of a difference are left out, because the format has none. Thread-safe.
std::string Speedscope(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_SPEEDSCOPE_H_
