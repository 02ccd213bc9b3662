// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/processes_json.h"

#include "absl/strings/str_cat.h"
#include "userspace/export/json.h"
#include "userspace/export/printable_text.h"

namespace heaptap::service {
namespace {

using exporter::Json;

std::string Time(absl::Time time) { return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone()); }

Json ToJson(const ProcessSummary& process) {
  return {{"pid", process.pid},
          {"process_id", process.process_id},
          {"owner", process.owner},
          {"command", exporter::Printable(process.command)},
          {"executable", exporter::Printable(process.executable)},
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
  Json document = {{"schema_version", kSchemaVersion}};
  document.SetAll(content);
  return absl::StrCat(document.Text(), "\n");
}

}  // namespace

std::string ProcessesJson(absl::Span<const ProcessSummary> processes) {
  Json list = Json::List();
  for (const ProcessSummary& process : processes) list.Add(ToJson(process));
  return Document({{"processes", std::move(list)}});
}

std::string EndedJson(absl::Span<const EndedProcess> processes) {
  Json list = Json::List();
  for (const EndedProcess& process : processes) {
    Json entry = ToJson(process.summary);
    entry.Set("ended", Time(process.ended));
    entry.Set("status", process.status);
    entry.Set("by_oom_kill", process.by_oom_kill);
    entry.Set("dump", exporter::Printable(process.dump));
    list.Add(std::move(entry));
  }
  return Document({{"ended", std::move(list)}});
}

std::string AllocatorJson(const AllocatorFigures& figures) {
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

std::string ErrorJson(absl::string_view message) { return Json{{"error", exporter::Printable(message)}}.Text() + "\n"; }

}  // namespace heaptap::service
