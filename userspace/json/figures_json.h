// SPDX-License-Identifier: Apache-2.0
//
// Figures of a process as JSON objects, whose members are the rows of profile/figure_tables.h.
//
// Times are RFC 3339 in UTC, unknown values are null, and text that a process chose is made printable
// (base/printable_text.h). Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_JSON_FIGURES_JSON_H_
#define HEAPTAP_USERSPACE_JSON_FIGURES_JSON_H_

#include <map>
#include <string>

#include "absl/time/time.h"
#include "userspace/json/json.h"
#include "userspace/profile/coverage.h"
#include "userspace/profile/figures.h"

namespace heaptap::json {

Json ToJson(const profile::ProcessSummary& process);
// The members of its summary, then its own.
Json ToJson(const profile::EndedProcess& process);
// With its statistics in a member "statistics".
Json ToJson(const profile::AllocatorFigures& figures);
Json ToJson(const profile::ResidentBytes& resident);
// CollectorFigures::failing as a list of {"task": ..., "since": ...}.
Json ToJson(const std::map<std::string, absl::Time>& failing);

}  // namespace heaptap::json

#endif  // HEAPTAP_USERSPACE_JSON_FIGURES_JSON_H_
