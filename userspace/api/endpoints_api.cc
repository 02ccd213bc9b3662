// SPDX-License-Identifier: Apache-2.0
//
// The API of heaptap's own commands. Errors are JSON.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/api/endpoint.h"
#include "userspace/api/growth_rates.h"
#include "userspace/api/processes_json.h"
#include "userspace/base/printable_text.h"
#include "userspace/base/repeated_task.h"
#include "userspace/export/collapsed.h"
#include "userspace/export/gperftools_heap.h"
#include "userspace/export/heap_v2.h"
#include "userspace/export/jeprof_symbolized.h"
#include "userspace/export/json.h"
#include "userspace/export/pprof.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

http::Response JsonAnswer(std::string body) { return {.content_type = http::kJson, .body = std::move(body)}; }
http::Response JsonAnswer(const exporter::Json& fields) {
  exporter::Json document = {{"schema_version", exporter::kSchemaVersion}};
  document.SetAll(fields);
  return JsonAnswer(absl::StrCat(document.Text(), "\n"));
}

void AddGrowth(const GrowthRates& rates, std::vector<profile::ProcessSummary>& processes) {
  for (profile::ProcessSummary& process : processes) {
    const auto rate = rates.find(process.process_id);
    if (rate == rates.end()) continue;
    process.growth_per_minute = rate->second.bytes_per_minute;
    process.growth_error = rate->second.error;
    process.growth_seconds = absl::ToDoubleSeconds(rate->second.period);
  }
}

Reply Processes(Call& call) {
  absl::StatusOr<std::vector<profile::ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  if (call.history != nullptr) AddGrowth(call.history->Growth(), *processes);
  return JsonAnswer(ProcessesJson(*processes, call.collector.IsRestricted(), base::FailingTasks()));
}

Reply Ended(Call& call) {
  absl::StatusOr<std::vector<profile::EndedProcess>> ended = call.collector.Ended();
  if (!ended.ok()) return ended.status();
  std::erase_if(*ended, [&](const profile::EndedProcess& process) { return !call.access.Sees(process.summary.owner); });
  return JsonAnswer(EndedJson(*ended));
}

std::string Collapsed(Call& call, profile::Snapshot snapshot, exporter::CollapsedValue value) {
  const exporter::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return exporter::Collapsed(snapshot.profile, value, find);
}

std::string Jeprof(Call& call, profile::Snapshot snapshot) {
  const exporter::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return exporter::JeprofSymbolized(snapshot.profile, snapshot.executable, find);
}

std::string Pprof(Call& call, profile::Snapshot snapshot) {
  const exporter::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return exporter::Pprof(snapshot.profile, {.time = snapshot.time,
                                            .program = snapshot.executable,
                                            .find_source_frames = find,
                                            .blocks = snapshot.profile.HasBlocks()});
}

Reply CollapsedPage(Call& call, const profile::ProcessSummary& process) {
  const std::string name = call.request.Parameter("value").value_or("live_bytes");
  constexpr std::pair<absl::string_view, exporter::CollapsedValue> kValues[] = {
      {"live_bytes", exporter::CollapsedValue::kLiveBytes},
      {"live_objects", exporter::CollapsedValue::kLiveObjects},
      {"allocated_bytes", exporter::CollapsedValue::kAllocatedBytes},
      {"allocated_objects", exporter::CollapsedValue::kAllocatedObjects},
  };
  for (const auto& [known, value] : kValues) {
    if (known != name) continue;
    absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
    if (!snapshot.ok()) return snapshot.status();
    return http::Response{.body = Collapsed(call, std::move(*snapshot), value)};
  }
  return absl::InvalidArgumentError("value must be live_bytes, live_objects, allocated_bytes or allocated_objects");
}

Reply JeprofPage(Call& call, const profile::ProcessSummary& process) {
  absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  return http::Response{.body = Jeprof(call, std::move(*snapshot))};
}

Reply Heap(Call& call, const profile::ProcessSummary& process) {
  const std::string format = call.request.Parameter("format").value_or("heap_v2");
  constexpr absl::string_view kFormats[] = {"heap_v2", "gperftools", "pprof", "blocks", "collapsed", "jeprof"};
  if (std::find(std::begin(kFormats), std::end(kFormats), format) == std::end(kFormats)) {
    return absl::InvalidArgumentError("format must be heap_v2, gperftools, pprof, blocks, collapsed or jeprof");
  }
  const bool with_blocks = format == "blocks";
  absl::StatusOr<profile::Snapshot> snapshot = with_blocks ? call.collector.DetailedSnapshot(process.ref(), call.asker)
                                                           : call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  if (format == "gperftools") return http::Response{.body = exporter::GperftoolsHeap(snapshot->profile)};
  if (format == "pprof" || with_blocks) {
    return http::Response{.content_type = "application/octet-stream", .body = Pprof(call, std::move(*snapshot))};
  }
  if (format == "collapsed") {
    return http::Response{.body = Collapsed(call, std::move(*snapshot), exporter::CollapsedValue::kLiveBytes)};
  }
  if (format == "jeprof") return http::Response{.body = Jeprof(call, std::move(*snapshot))};
  return http::Response{.content_type = http::kPlainText, .body = exporter::HeapV2(snapshot->profile)};
}

Reply Dump(Call& call, const profile::ProcessSummary& process) {
  const absl::StatusOr<std::string> path = call.collector.Dump(process.ref(), call.asker);
  if (!path.ok()) return path.status();
  return JsonAnswer(exporter::Json{{"path", base::Printable(*path)}});
}

Reply DumpAll(Call& call) {
  const absl::StatusOr<std::vector<profile::ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  exporter::Json list = exporter::Json::List();
  for (const profile::ProcessSummary& process : *processes) {
    const absl::StatusOr<std::string> path = call.collector.Dump(process.ref(), call.asker);
    if (absl::IsNotFound(path.status())) continue;  // it has ended in the meantime
    exporter::Json entry = {{"pid", process.pid}};
    if (path.ok()) {
      entry.Set("path", base::Printable(*path));
    } else {
      entry.Set("error", base::Printable(path.status().message()));
    }
    list.Add(std::move(entry));
  }
  return JsonAnswer(exporter::Json{{"dumps", std::move(list)}});
}

// Others would make the collector work for their questions.
Reply Settle(Call& call) {
  if (!call.access.SeesAll()) return absl::PermissionDeniedError("only root may wait for the whole recording");
  const absl::Status settled = call.collector.Settle();
  if (!settled.ok()) return settled;
  return JsonAnswer(exporter::Json{{"settled", true}});
}

Reply Active(Call& call, const profile::ProcessSummary& process) {
  const std::optional<std::string> value = call.request.Parameter("value");
  if (value != "on" && value != "off") return absl::InvalidArgumentError("value must be on or off");
  const absl::Status set = call.collector.SetActive(process.ref(), value == "on");
  if (!set.ok()) return set;
  return JsonAnswer(exporter::Json{{"active", value == "on"}});
}

Reply Rate(Call& call, const profile::ProcessSummary& process) {
  const std::string text = call.request.Parameter("lg").value_or("");
  const std::optional<uint32_t> lg_sample = ParseNumber(text, 0, HEAPTAP_MAX_LG_SAMPLE);
  if (!lg_sample.has_value() && text != "default") {
    return absl::InvalidArgumentError(
        absl::StrCat("lg must be a number from 0 to ", HEAPTAP_MAX_LG_SAMPLE, ", or default"));
  }
  const absl::Status set = call.collector.SetRate(process.ref(), lg_sample);
  if (!set.ok()) return set;
  return JsonAnswer(
      exporter::Json{{"lg_sample", lg_sample.has_value() ? exporter::Json(*lg_sample) : exporter::Json("default")}});
}

Reply Allocator(Call& call, const profile::ProcessSummary& process) {
  const absl::StatusOr<profile::AllocatorFigures> figures = call.collector.Allocator(process.ref());
  if (!figures.ok()) return figures.status();
  return JsonAnswer(AllocatorJson(*figures));
}

Reply Resident(Call& call, const profile::ProcessSummary& process) {
  const absl::StatusOr<profile::ResidentBytes> resident = call.collector.Resident(process.ref(), call.asker);
  if (!resident.ok()) return resident.status();
  return JsonAnswer(ResidentJson(*resident));
}

constexpr CollectorEndpoint kApiEndpoints[] = {
    {"processes.json", kRead, ErrorForm::kJson, Processes},
    {"ended.json", kRead, ErrorForm::kJson, Ended},
    {"dump", kPost, ErrorForm::kJson, DumpAll},
    {"settle", kPost, ErrorForm::kJson, Settle},
};

constexpr ProcessEndpoint kProcessEndpoints[] = {
    {"heap", kRead, ErrorForm::kJson, Heap, true},         {"collapsed", kRead, ErrorForm::kJson, CollapsedPage, true},
    {"jeprof", kRead, ErrorForm::kJson, JeprofPage, true}, {"allocator.json", kRead, ErrorForm::kJson, Allocator, true},
    {"dump", kPost, ErrorForm::kJson, Dump, true},         {"active", kPost, ErrorForm::kJson, Active, true},
    {"rate", kPost, ErrorForm::kJson, Rate, true},         {"resident.json", kRead, ErrorForm::kJson, Resident, true},
};

}  // namespace

absl::Span<const CollectorEndpoint> ApiEndpoints() { return kApiEndpoints; }
absl::Span<const ProcessEndpoint> ApiProcessEndpoints() { return kProcessEndpoints; }

}  // namespace heaptap::api
