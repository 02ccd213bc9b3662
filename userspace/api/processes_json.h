// SPDX-License-Identifier: Apache-2.0
//
// The collector's data about processes as JSON.
//
// Format: one JSON document in UTF-8, {"schema_version": 1, ...}, with the objects of json/figures_json.h.
// schema_version changes when a field is removed or changes its meaning, not when one is added.
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_API_PROCESSES_JSON_H_
#define HEAPTAP_USERSPACE_API_PROCESSES_JSON_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/api/collector.h"
#include "userspace/profile/coverage.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {

// {"schema_version": 1, "processes": [...], "restricted": ..., "failing": [{"task": ..., "since": ...}]}
std::string ProcessesJson(absl::Span<const profile::ProcessSummary> processes, bool is_restricted,
                          const std::map<std::string, absl::Time>& failing);

// {"schema_version": 1, "ended": [{<as a process>, "ended": ..., "status": ..., "by_oom_kill": ..., "dump": ...}]}
std::string EndedJson(absl::Span<const profile::EndedProcess> processes);

// {"error": <message, made printable>}, and a newline
std::string ErrorJson(absl::string_view message);

// {"schema_version": 1, "options": ..., "active": ..., "lg_sample": ..., "statistics": {...}}
std::string AllocatorJson(const profile::AllocatorFigures& figures);

// {"schema_version": 1, "anonymous": ..., "files": ..., "shared": ..., "stacks": ...}
std::string ResidentJson(const profile::ResidentBytes& resident);

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_PROCESSES_JSON_H_
