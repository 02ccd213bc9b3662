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
#include "userspace/formats/collapsed.h"
#include "userspace/formats/offered.h"
#include "userspace/json/json.h"
#include "userspace/profile/figures.h"
#include "userspace/profile/snapshot.h"

namespace heaptap::api {
namespace {

http::Response Document(std::string text) { return {.content_type = http::kJson, .body = std::move(text)}; }

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
  return Document(ProcessesJson(*processes, call.collector.IsRestricted(), base::FailingTasks()));
}

Reply Ended(Call& call) {
  absl::StatusOr<std::vector<profile::EndedProcess>> ended = call.collector.Ended();
  if (!ended.ok()) return ended.status();
  std::erase_if(*ended, [&](const profile::EndedProcess& process) { return !call.access.Sees(process.summary.owner); });
  return Document(EndedJson(*ended));
}

absl::StatusOr<std::string> Collapsed(Call& call, profile::Snapshot& snapshot, formats::CollapsedValue value) {
  const profile::FindSourceFrames find = call.symbols.FindAll(snapshot);
  return formats::CollapsedWithin(formats::kMaxCollapsedBytes, snapshot.profile, value, find);
}

Reply CollapsedPage(Call& call, const profile::NamedProcess& process) {
  const std::string name = call.request.Parameter("value").value_or("live_bytes");
  constexpr std::pair<absl::string_view, formats::CollapsedValue> kValues[] = {
      {"live_bytes", formats::CollapsedValue::kLiveBytes},
      {"live_objects", formats::CollapsedValue::kLiveObjects},
      {"allocated_bytes", formats::CollapsedValue::kAllocatedBytes},
      {"allocated_objects", formats::CollapsedValue::kAllocatedObjects},
  };
  for (const auto& [known, value] : kValues) {
    if (known != name) continue;
    call.asker.NeedAllRoom();
    absl::StatusOr<profile::Snapshot> snapshot = call.collector.Snapshot(process.ref(), call.asker);
    if (!snapshot.ok()) return snapshot.status();
    absl::StatusOr<std::string> text = Collapsed(call, *snapshot, value);
    if (!text.ok()) return text.status();
    return http::Response{.body = *std::move(text)};
  }
  return absl::InvalidArgumentError("value must be live_bytes, live_objects, allocated_bytes or allocated_objects");
}

Reply Heap(Call& call, const profile::NamedProcess& process, const formats::OfferedFormat* format) {
  if (format == nullptr) return absl::InvalidArgumentError(absl::StrCat("format must be ", formats::OfferedNames()));
  if (format->repeats_names) call.asker.NeedAllRoom();
  absl::StatusOr<profile::Snapshot> snapshot = format->has_blocks
                                                   ? call.collector.DetailedSnapshot(process.ref(), call.asker)
                                                   : call.collector.Snapshot(process.ref(), call.asker);
  if (!snapshot.ok()) return snapshot.status();
  const profile::FindSourceFrames find =
      format->has_names ? call.symbols.FindAll(*snapshot) : profile::FindSourceFrames();
  absl::StatusOr<std::string> text = format->write(*snapshot, find);
  if (!text.ok()) return text.status();
  return http::Response{.content_type = format->content_type, .body = *std::move(text)};
}

Reply JeprofPage(Call& call, const profile::NamedProcess& process) {
  return Heap(call, process, formats::FindOffered("jeprof"));
}

Reply HeapPage(Call& call, const profile::NamedProcess& process) {
  const std::optional<std::string> name = call.request.Parameter("format");
  return Heap(call, process, name.has_value() ? formats::FindOffered(*name) : &formats::OfferedFormats().front());
}

Reply Dump(Call& call, const profile::NamedProcess& process) {
  const absl::StatusOr<std::string> path = call.collector.Dump(process.ref(), call.asker);
  if (!path.ok()) return path.status();
  return FieldsAnswer(json::Json{{"path", base::Printable(*path)}});
}

Reply DumpAll(Call& call) {
  const absl::StatusOr<std::vector<profile::ProcessSummary>> processes = VisibleProcesses(call);
  if (!processes.ok()) return processes.status();
  json::Json list = json::Json::List();
  for (const profile::ProcessSummary& process : *processes) {
    const absl::StatusOr<std::string> path = call.collector.Dump(process.ref(), call.asker);
    if (absl::IsNotFound(path.status())) continue;  // it has ended in the meantime
    json::Json entry = {{"pid", process.pid}};
    if (path.ok()) {
      entry.Set("path", base::Printable(*path));
    } else {
      entry.Set("error", base::Printable(path.status().message()));
    }
    list.Add(std::move(entry));
  }
  return FieldsAnswer(json::Json{{"dumps", std::move(list)}});
}

// Other users could make the collector work with such questions.
Reply Settle(Call& call) {
  if (!call.access.SeesAll()) return absl::PermissionDeniedError("only root may wait for the whole recording");
  const absl::Status settled = call.collector.Settle();
  if (!settled.ok()) return settled;
  return FieldsAnswer(json::Json{{"settled", true}});
}

Reply Active(Call& call, const profile::NamedProcess& process) {
  const std::optional<std::string> value = call.request.Parameter("value");
  if (value != "on" && value != "off") return absl::InvalidArgumentError("value must be on or off");
  const absl::Status set = call.collector.SetActive(process.ref(), value == "on");
  if (!set.ok()) return set;
  return FieldsAnswer(json::Json{{"active", value == "on"}});
}

Reply Rate(Call& call, const profile::NamedProcess& process) {
  const std::string text = call.request.Parameter("lg").value_or("");
  const std::optional<uint32_t> lg_sample = ParseNumber(text, 0, HEAPTAP_MAX_LG_SAMPLE);
  if (!lg_sample.has_value() && text != "default") {
    return absl::InvalidArgumentError(
        absl::StrCat("lg must be a number from 0 to ", HEAPTAP_MAX_LG_SAMPLE, ", or default"));
  }
  const absl::Status set = call.collector.SetRate(process.ref(), lg_sample);
  if (!set.ok()) return set;
  return FieldsAnswer(
      json::Json{{"lg_sample", lg_sample.has_value() ? json::Json(*lg_sample) : json::Json("default")}});
}

Reply Allocator(Call& call, const profile::NamedProcess& process) {
  const absl::StatusOr<profile::AllocatorFigures> figures = call.collector.Allocator(process.ref());
  if (!figures.ok()) return figures.status();
  return Document(AllocatorJson(*figures));
}

Reply Resident(Call& call, const profile::NamedProcess& process) {
  const absl::StatusOr<profile::ResidentBytes> resident = call.collector.Resident(process.ref(), call.asker);
  if (!resident.ok()) return resident.status();
  return Document(ResidentJson(*resident));
}

constexpr CollectorEndpoint kApiEndpoints[] = {
    {"processes.json", kRead, ErrorForm::kJson, Processes},
    {"ended.json", kRead, ErrorForm::kJson, Ended},
    {"dump", kPost, ErrorForm::kJson, DumpAll},
    {"settle", kPost, ErrorForm::kJson, Settle},
};

constexpr ProcessEndpoint kProcessEndpoints[] = {
    {"heap", kRead, ErrorForm::kJson, HeapPage, true},     {"collapsed", kRead, ErrorForm::kJson, CollapsedPage, true},
    {"jeprof", kRead, ErrorForm::kJson, JeprofPage, true}, {"allocator.json", kRead, ErrorForm::kJson, Allocator, true},
    {"dump", kPost, ErrorForm::kJson, Dump, true},         {"active", kPost, ErrorForm::kJson, Active, true},
    {"rate", kPost, ErrorForm::kJson, Rate, true},         {"resident.json", kRead, ErrorForm::kJson, Resident, true},
};

}  // namespace

absl::Span<const CollectorEndpoint> ApiEndpoints() { return kApiEndpoints; }
absl::Span<const ProcessEndpoint> ApiProcessEndpoints() { return kProcessEndpoints; }

}  // namespace heaptap::api
