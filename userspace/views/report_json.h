// SPDX-License-Identifier: Apache-2.0
//
// `heaptap report --json`: a profile with names as one JSON document.
#ifndef HEAPTAP_USERSPACE_VIEWS_REPORT_JSON_H_
#define HEAPTAP_USERSPACE_VIEWS_REPORT_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "userspace/json/json.h"
#include "userspace/report/rows.h"
#include "userspace/report/summary_text.h"

namespace heaptap::report {

// {"schema_version": 1, "subject": ..., "period": ..., "live": MEASURE, "allocated": MEASURE, "freed": MEASURE,
//  "warnings": [...], "call_paths": [{"live": MEASURE, "allocated": MEASURE, "freed": MEASURE, "truncated": ...,
//  "frames": [{"function": ..., "file": ..., "line": ..., "library": ..., "place": ..., "inline": ...}]}]}.
// "place" stands for an unknown function: the file and the offset in it.
//
// MEASURE: {"bytes": ..., "error": ..., "objects": ..., "samples": ...}; "error" is the standard error of the bytes.
// Call paths come in the order of `paths`, at most `top` of them (0: all). Unknown texts are null. Thread-safe.
json::Json ReportJson(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, size_t top);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_VIEWS_REPORT_JSON_H_
