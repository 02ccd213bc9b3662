// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/processes_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "userspace/export/printable_text.h"

namespace heaptap::service {
namespace {

using nlohmann::ordered_json;

std::string Time(absl::Time time) { return absl::FormatTime(absl::RFC3339_full, time, absl::UTCTimeZone()); }

ordered_json ToJson(const ProcessSummary& process) {
  return {{"pid", process.pid},
          {"process_id", process.process_id},
          {"owner", process.owner.has_value() ? ordered_json(*process.owner) : ordered_json()},
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
          {"active", process.active.has_value() ? ordered_json(*process.active) : ordered_json()},
          {"losses", ordered_json(process.losses)}};
}

std::string Document(ordered_json content) {
  ordered_json document = {{"schema_version", kSchemaVersion}};
  document.update(content);
  return absl::StrCat(document.dump(), "\n");
}

}  // namespace

std::string ProcessesJson(absl::Span<const ProcessSummary> processes) {
  ordered_json list = ordered_json::array();
  for (const ProcessSummary& process : processes) list.push_back(ToJson(process));
  return Document({{"processes", std::move(list)}});
}

std::string EndedJson(absl::Span<const EndedProcess> processes) {
  ordered_json list = ordered_json::array();
  for (const EndedProcess& process : processes) {
    ordered_json entry = ToJson(process.summary);
    entry["ended"] = Time(process.ended);
    entry["status"] = process.status;
    entry["by_oom_kill"] = process.by_oom_kill;
    entry["dump"] = exporter::Printable(process.dump);
    list.push_back(std::move(entry));
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

std::string ErrorJson(absl::string_view message) {
  return ordered_json({{"error", exporter::Printable(message)}}).dump() + "\n";
}

}  // namespace heaptap::service
