// SPDX-License-Identifier: Apache-2.0
//
// The API of heaptap's own commands. Errors are JSON.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/export/collapsed.h"
#include "userspace/export/gperftools_heap.h"
#include "userspace/export/heap_v2.h"
#include "userspace/export/jeprof_symbolized.h"
#include "userspace/export/json.h"
#include "userspace/export/pprof.h"
#include "userspace/export/printable_text.h"
#include "userspace/service/http_endpoint.h"
#include "userspace/service/processes_json.h"

namespace heaptap::service {
namespace {

HttpAnswer JsonAnswer(std::string body) { return {.content_type = kJson, .body = std::move(body)}; }
HttpAnswer JsonAnswer(const exporter::Json& fields) {
  exporter::Json document = {{"schema_version", kSchemaVersion}};
  document.SetAll(fields);
  return JsonAnswer(absl::StrCat(document.Text(), "\n"));
}

HttpReply Processes(HttpCall& call) {
  const absl::StatusOr<std::vector<ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  return JsonAnswer(ProcessesJson(*processes));
}

HttpReply Ended(HttpCall& call) {
  absl::StatusOr<std::vector<EndedProcess>> ended = call.collector.Ended();
  if (!ended.ok()) return ended.status();
  std::erase_if(*ended, [&](const EndedProcess& process) { return !call.access.Sees(process.summary.owner); });
  return JsonAnswer(EndedJson(*ended));
}

std::string Collapsed(HttpCall& call, ProfileSnapshot snapshot, exporter::CollapsedValue value) {
  const exporter::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return exporter::Collapsed(snapshot.profile, value, find);
}

std::string Jeprof(HttpCall& call, ProfileSnapshot snapshot) {
  const exporter::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return exporter::JeprofSymbolized(snapshot.profile, snapshot.executable, find);
}

std::string Pprof(HttpCall& call, ProfileSnapshot snapshot) {
  const exporter::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return exporter::Pprof(snapshot.profile,
                         {.time = snapshot.time, .program = snapshot.executable, .find_source_frames = find});
}

HttpReply CollapsedPage(HttpCall& call, const ProcessSummary& process) {
  const std::string name = call.request.Parameter("value").value_or("live_bytes");
  constexpr std::pair<absl::string_view, exporter::CollapsedValue> kValues[] = {
      {"live_bytes", exporter::CollapsedValue::kLiveBytes},
      {"live_objects", exporter::CollapsedValue::kLiveObjects},
      {"allocated_bytes", exporter::CollapsedValue::kAllocatedBytes},
      {"allocated_objects", exporter::CollapsedValue::kAllocatedObjects},
  };
  for (const auto& [known, value] : kValues) {
    if (known != name) continue;
    absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
    if (!snapshot.ok()) return snapshot.status();
    return HttpAnswer{.body = Collapsed(call, std::move(*snapshot), value)};
  }
  return absl::InvalidArgumentError("value must be live_bytes, live_objects, allocated_bytes or allocated_objects");
}

HttpReply JeprofPage(HttpCall& call, const ProcessSummary& process) {
  absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
  if (!snapshot.ok()) return snapshot.status();
  return HttpAnswer{.body = Jeprof(call, std::move(*snapshot))};
}

HttpReply Heap(HttpCall& call, const ProcessSummary& process) {
  const std::string format = call.request.Parameter("format").value_or("heap_v2");
  constexpr absl::string_view kFormats[] = {"heap_v2", "gperftools", "pprof", "collapsed", "jeprof"};
  if (std::find(std::begin(kFormats), std::end(kFormats), format) == std::end(kFormats)) {
    return absl::InvalidArgumentError("format must be heap_v2, gperftools, pprof, collapsed or jeprof");
  }
  absl::StatusOr<ProfileSnapshot> snapshot = SnapshotOf(call, process);
  if (!snapshot.ok()) return snapshot.status();
  if (format == "gperftools") return HttpAnswer{.body = exporter::GperftoolsHeap(snapshot->profile)};
  if (format == "pprof") {
    return HttpAnswer{.content_type = "application/octet-stream", .body = Pprof(call, std::move(*snapshot))};
  }
  if (format == "collapsed") {
    return HttpAnswer{.body = Collapsed(call, std::move(*snapshot), exporter::CollapsedValue::kLiveBytes)};
  }
  if (format == "jeprof") return HttpAnswer{.body = Jeprof(call, std::move(*snapshot))};
  return HttpAnswer{.content_type = kPlainText, .body = exporter::HeapV2(snapshot->profile)};
}

HttpReply Dump(HttpCall& call, const ProcessSummary& process) {
  const absl::StatusOr<std::string> path = call.collector.Dump(process.pid);
  if (!path.ok()) return path.status();
  return JsonAnswer(exporter::Json{{"path", exporter::Printable(*path)}});
}

HttpReply DumpAll(HttpCall& call) {
  const absl::StatusOr<std::vector<ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  exporter::Json list = exporter::Json::List();
  for (const ProcessSummary& process : *processes) {
    const absl::StatusOr<std::string> path = call.collector.Dump(process.pid);
    if (absl::IsNotFound(path.status())) continue;  // it has ended in the meantime
    exporter::Json entry = {{"pid", process.pid}};
    if (path.ok()) {
      entry.Set("path", exporter::Printable(*path));
    } else {
      entry.Set("error", exporter::Printable(path.status().message()));
    }
    list.Add(std::move(entry));
  }
  return JsonAnswer(exporter::Json{{"dumps", std::move(list)}});
}

HttpReply Active(HttpCall& call, const ProcessSummary& process) {
  const std::optional<std::string> value = call.request.Parameter("value");
  if (value != "on" && value != "off") return absl::InvalidArgumentError("value must be on or off");
  const absl::Status set = call.collector.SetActive(process.pid, value == "on");
  if (!set.ok()) return set;
  return JsonAnswer(exporter::Json{{"active", value == "on"}});
}

HttpReply Rate(HttpCall& call, const ProcessSummary& process) {
  const std::string text = call.request.Parameter("lg").value_or("");
  const std::optional<uint32_t> lg_sample = ParseNumber(text, 0, HEAPTAP_MAX_LG_SAMPLE);
  if (!lg_sample.has_value() && text != "default") {
    return absl::InvalidArgumentError(
        absl::StrCat("lg must be a number from 0 to ", HEAPTAP_MAX_LG_SAMPLE, ", or default"));
  }
  const absl::Status set = call.collector.SetRate(process.pid, lg_sample);
  if (!set.ok()) return set;
  return JsonAnswer(
      exporter::Json{{"lg_sample", lg_sample.has_value() ? exporter::Json(*lg_sample) : exporter::Json("default")}});
}

HttpReply Allocator(HttpCall& call, const ProcessSummary& process) {
  const absl::StatusOr<AllocatorFigures> figures = AllocatorOf(call, process);
  if (!figures.ok()) return figures.status();
  return JsonAnswer(AllocatorJson(*figures));
}

constexpr CollectorEndpoint kEndpoints[] = {
    {"processes.json", kRead, ErrorForm::kJson, Processes},
    {"ended.json", kRead, ErrorForm::kJson, Ended},
    {"dump", kPost, ErrorForm::kJson, DumpAll},
};

constexpr ProcessEndpoint kProcessEndpoints[] = {
    {"heap", kRead, ErrorForm::kJson, Heap, true},         {"collapsed", kRead, ErrorForm::kJson, CollapsedPage, true},
    {"jeprof", kRead, ErrorForm::kJson, JeprofPage, true}, {"allocator.json", kRead, ErrorForm::kJson, Allocator, true},
    {"dump", kPost, ErrorForm::kJson, Dump, true},         {"active", kPost, ErrorForm::kJson, Active, true},
    {"rate", kPost, ErrorForm::kJson, Rate, true},
};

}  // namespace

absl::Span<const CollectorEndpoint> ApiEndpoints() { return kEndpoints; }
absl::Span<const ProcessEndpoint> ApiProcessEndpoints() { return kProcessEndpoints; }

}  // namespace heaptap::service
