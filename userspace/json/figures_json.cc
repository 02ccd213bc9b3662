// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/figures_json.h"

#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "userspace/base/printable_text.h"
#include "userspace/profile/figure_tables.h"

namespace heaptap::json {
namespace {

Json ValueJson(const std::string& text) { return base::Printable(text); }
Json ValueJson(const std::optional<std::string>& text) {
  return text.has_value() ? Json(base::Printable(*text)) : Json();
}
Json ValueJson(absl::Time time) { return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone()); }
template <typename Value>
Json ValueJson(const Value& value) {
  return value;
}

template <const auto& kTable, typename Struct>
Json ObjectJson(const Struct& figures, Json object = {}) {
  profile::ForEachFigure<kTable>([&](const auto& row) { object.Set(row.name, ValueJson(figures.*row.value)); });
  return object;
}

}  // namespace

Json ToJson(const profile::ProcessSummary& process) { return ObjectJson<profile::kProcessFigures>(process); }

Json ToJson(const profile::EndedProcess& process) {
  return ObjectJson<profile::kEndedFigures>(process, ToJson(process.summary));
}

Json ToJson(const profile::AllocatorFigures& figures) {
  Json object = ObjectJson<profile::kAllocatorFigures>(figures);
  object.Set("statistics",
             figures.statistics.has_value() ? ObjectJson<profile::kStatisticsFigures>(*figures.statistics) : Json());
  return object;
}

Json ToJson(const profile::ResidentBytes& resident) { return ObjectJson<profile::kResidentFigures>(resident); }

Json ToJson(const std::map<std::string, absl::Time>& failing) {
  Json list = Json::List();
  for (const auto& [task, since] : failing) list.Add({{"task", task}, {"since", ValueJson(since)}});
  return list;
}

}  // namespace heaptap::json
