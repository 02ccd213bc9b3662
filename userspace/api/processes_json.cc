// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/processes_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/json/figures_json.h"
#include "userspace/json/json.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {
namespace {

using json::Json;

std::string Document(const Json& content) {
  Json document = {{"schema_version", json::kSchemaVersion}};
  document.SetAll(content);
  return absl::StrCat(document.Text(), "\n");
}

}  // namespace

std::string ProcessesJson(absl::Span<const profile::ProcessSummary> processes, bool is_restricted,
                          const std::map<std::string, absl::Time>& failing) {
  Json list = Json::List();
  for (const profile::ProcessSummary& process : processes) list.Add(json::ToJson(process));
  return Document({{"processes", std::move(list)}, {"restricted", is_restricted}, {"failing", json::ToJson(failing)}});
}

std::string EndedJson(absl::Span<const profile::EndedProcess> processes) {
  Json list = Json::List();
  for (const profile::EndedProcess& process : processes) list.Add(json::ToJson(process));
  return Document({{"ended", std::move(list)}});
}

std::string AllocatorJson(const profile::AllocatorFigures& figures) { return Document(json::ToJson(figures)); }

std::string ResidentJson(const profile::ResidentBytes& resident) { return Document(json::ToJson(resident)); }

std::string ErrorJson(absl::string_view message) { return Json{{"error", base::Printable(message)}}.Text() + "\n"; }

}  // namespace heaptap::api
