// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/ask/documents.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/cli/words/url_text.h"
#include "userspace/json/figures_reader.h"
#include "userspace/profile/figure_tables.h"
#include "userspace/profile/figures.h"

namespace heaptap::cli {
namespace {

using json::Fields;
// Reads a list of objects in a document, each with `read`(object, where, error).
template <typename Read>
auto ReadList(const Client& client, const char* target, const nlohmann::json& document, const char* name, Read read)
    -> absl::StatusOr<std::vector<decltype(read(document, std::string(), std::declval<std::string&>()))>> {
  std::vector<decltype(read(document, std::string(), std::declval<std::string&>()))> list;
  std::string error;
  if (const nlohmann::json* objects = Fields(document, "", error).TakeList(name)) {
    for (const nlohmann::json& object : *objects) {
      list.push_back(read(object, absl::StrCat(name, "[", list.size(), "]"), error));
      if (!error.empty()) break;
    }
  }
  if (!error.empty()) return client.Unexpected(target, error);
  return list;
}

std::pair<std::string, absl::Time> ReadFailing(const nlohmann::json& object, const std::string& where,
                                               std::string& error) {
  std::pair<std::string, absl::Time> failing;
  Fields fields(object, where, error);
  fields.Take("task", failing.first);
  fields.Take("since", failing.second);
  return failing;
}

}  // namespace

absl::StatusOr<std::vector<ProcessDocument>> GetProcesses(const Client& client, DaemonState* state) {
  constexpr char kTarget[] = "/processes.json";
  absl::StatusOr<nlohmann::json> document = client.GetJson(kTarget);
  if (!document.ok()) return document.status();
  if (state != nullptr) {
    const auto found = document->find("restricted");
    // Older daemons tell neither.
    state->is_restricted = found == document->end() || *found != false;
    if (document->contains("failing")) {
      const auto failing = ReadList(client, kTarget, *document, "failing", ReadFailing);
      if (!failing.ok()) return failing.status();
      state->failing.insert(failing->begin(), failing->end());
    }
  }
  return ReadList(client, kTarget, *document, "processes",
                  [](const nlohmann::json& object, const std::string& where, std::string& error) {
                    return ProcessDocument{json::ReadSummary(object, where, error), json::Json(object)};
                  });
}

absl::StatusOr<ProcessDocument> GetProcess(const Client& client, pid_t pid) {
  absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(client);
  if (!processes.ok()) return processes.status();
  for (ProcessDocument& process : *processes) {
    if (process.value.pid == pid) return std::move(process);
  }
  return absl::NotFoundError(absl::StrCat("process ", pid, " is not recorded; heaptap list",
                                          SocketWords(client.socket()), " shows the recorded ones"));
}

absl::StatusOr<std::vector<EndedDocument>> GetEnded(const Client& client) {
  constexpr char kTarget[] = "/ended.json";
  absl::StatusOr<nlohmann::json> document = client.GetJson(kTarget);
  if (!document.ok()) return document.status();
  return ReadList(client, kTarget, *document, "ended",
                  [](const nlohmann::json& object, const std::string& where, std::string& error) {
                    return EndedDocument{json::ReadEnded(object, where, error), json::Json(object)};
                  });
}

absl::StatusOr<profile::AllocatorFigures> GetAllocator(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/allocator.json");
  absl::StatusOr<nlohmann::json> document = client.GetJson(target);
  if (!document.ok()) return document.status();
  profile::AllocatorFigures figures;
  std::string error;
  Fields fields(*document, "", error);
  fields.TakeFigures<profile::kAllocatorFigures>(figures);
  if (!fields.IsNull("statistics")) {
    if (const nlohmann::json* object = fields.TakeObject("statistics")) {
      Fields(*object, "statistics", error).TakeFigures<profile::kStatisticsFigures>(figures.statistics.emplace());
    }
  } else {
    figures.statistics.reset();
  }
  if (!error.empty()) return client.Unexpected(target, error);
  return figures;
}

absl::StatusOr<profile::ResidentBytes> GetResident(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/resident.json");
  absl::StatusOr<nlohmann::json> document = client.GetJson(target);
  if (!document.ok()) return document.status();
  profile::ResidentBytes resident;
  std::string error;
  Fields(*document, "", error).TakeFigures<profile::kResidentFigures>(resident);
  if (!error.empty()) return client.Unexpected(target, error);
  return resident;
}

absl::StatusOr<std::string> PostDump(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/dump");
  absl::StatusOr<nlohmann::json> document = client.Post(target);
  if (!document.ok()) return document.status();
  std::string path;
  std::string error;
  Fields(*document, "", error).Take("path", path);
  if (!error.empty()) return client.Unexpected(target, error);
  return path;
}

absl::StatusOr<std::vector<Dumped>> PostDumps(const Client& client) {
  constexpr char kTarget[] = "/dump";
  absl::StatusOr<nlohmann::json> document = client.Post(kTarget);
  if (!document.ok()) return document.status();
  return ReadList(client, kTarget, *document, "dumps",
                  [](const nlohmann::json& object, const std::string& where, std::string& error) {
                    Dumped dumped;
                    Fields fields(object, where, error);
                    fields.TakePid(dumped.pid);
                    std::string text;
                    if (fields.Has("error")) {
                      fields.Take("error", text);
                      dumped.path = absl::InternalError(base::AsciiOnly(text));
                    } else {
                      fields.Take("path", text);
                      dumped.path = std::move(text);
                    }
                    return dumped;
                  });
}

absl::Status PostMark(const Client& client, absl::string_view text, pid_t pid) {
  return client.Order(absl::StrCat("/mark?text=", UrlText(text), pid == 0 ? "" : absl::StrCat("&pid=", pid)));
}

}  // namespace heaptap::cli
