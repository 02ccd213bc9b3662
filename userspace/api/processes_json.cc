// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/processes_json.h"

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/export/json.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {
namespace {

using exporter::Json;

std::string Time(absl::Time time) { return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone()); }

Json ToJson(const profile::ProcessSummary& process) {
  return {{"pid", process.pid},
          {"process_id", process.process_id},
          {"owner", process.owner},
          {"command", base::Printable(process.command)},
          {"executable", base::Printable(process.executable)},
          {"recorded_since", Time(process.recorded_since)},
          {"live_bytes", process.live_bytes},
          {"live_objects", process.live_objects},
          {"peak_bytes", process.peak_bytes},
          {"allocated_bytes", process.allocated_bytes},
          {"allocated_objects", process.allocated_objects},
          {"allocation_rate", process.allocation_rate},
          {"contexts", process.contexts},
          {"samples", process.samples},
          {"lg_sample", process.lg_sample},
          {"active", process.active},
          {"losses", process.losses}};
}

std::string Document(const Json& content) {
  Json document = {{"schema_version", exporter::kSchemaVersion}};
  document.SetAll(content);
  return absl::StrCat(document.Text(), "\n");
}

}  // namespace

std::string ProcessesJson(absl::Span<const profile::ProcessSummary> processes) {
  Json list = Json::List();
  for (const profile::ProcessSummary& process : processes) list.Add(ToJson(process));
  return Document({{"processes", std::move(list)}});
}

std::string EndedJson(absl::Span<const profile::EndedProcess> processes) {
  Json list = Json::List();
  for (const profile::EndedProcess& process : processes) {
    Json entry = ToJson(process.summary);
    entry.Set("ended", Time(process.ended));
    entry.Set("status", process.status);
    entry.Set("by_oom_kill", process.by_oom_kill);
    entry.Set("dump", base::Printable(process.dump));
    list.Add(std::move(entry));
  }
  return Document({{"ended", std::move(list)}});
}

std::string AllocatorJson(const profile::AllocatorFigures& figures) {
  const heaptap_statistics& statistics = figures.statistics;
  return Document({{"options", figures.options},
                   {"active", figures.active},
                   {"lg_sample", figures.lg_sample},
                   {"statistics",
                    {{"mapped", statistics.mapped},
                     {"active", statistics.active},
                     {"dirty", statistics.dirty},
                     {"large", statistics.large},
                     {"sampled_objects", statistics.sampled_objects},
                     {"foreign_frees", statistics.foreign_frees}}}});
}

std::string ErrorJson(absl::string_view message) { return Json{{"error", base::Printable(message)}}.Text() + "\n"; }

}  // namespace heaptap::api
