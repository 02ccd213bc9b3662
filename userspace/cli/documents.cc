// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/documents.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "userspace/base/messages.h"
#include "userspace/cli/url_text.h"
#include "userspace/profile/figure_tables.h"
#include "userspace/profile/figures.h"

namespace heaptap::cli {
namespace {

using nlohmann::json;
using profile::AllocatorFigures;
using profile::EndedProcess;
using profile::ProcessSummary;

// Reads fields of one object and remembers the first error.
class Fields {
 public:
  // `where`: the place of the object in its document, for messages.
  Fields(const json& object, std::string where, std::string& error)
      : object_(object), where_(std::move(where)), error_(error) {
    if (!object.is_object()) Fail("", "is not an object");
  }

  bool Has(const char* name) const { return Value(name) != nullptr && !Value(name)->is_null(); }
  bool IsNull(const char* name) const { return Value(name) != nullptr && Value(name)->is_null(); }

  void Take(const char* name, std::string& value) {
    if (const json* field = Need(name, &json::is_string, "a string")) value = field->get<std::string>();
  }
  void Take(const char* name, bool& value) {
    if (const json* field = Need(name, &json::is_boolean, "true or false")) value = field->get<bool>();
  }
  void Take(const char* name, double& value) {
    if (const json* field = Need(name, &json::is_number, "a number")) value = field->get<double>();
  }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void Take(const char* name, Integer& value) {
    const json* field = Need(name, &json::is_number_unsigned, "a non-negative whole number");
    if (field == nullptr) return;
    const uint64_t number = field->get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<Integer>::max())) return Fail(name, "is too large");
    value = static_cast<Integer>(number);
  }
  template <typename Value>
  void Take(const char* name, std::optional<Value>& value) {
    if (Has(name)) Take(name, value.emplace());
  }
  void TakePid(pid_t& pid) {
    Take("pid", pid);
    CheckPid(pid);
  }
  void CheckPid(pid_t pid) {
    if (error_.empty() && pid == 0) Fail("pid", "is not a PID");
  }
  void Take(const char* name, absl::Time& value) {
    std::string text;
    Take(name, text);
    std::string unused;
    if (error_.empty() && !absl::ParseTime(absl::RFC3339_full, text, &value, &unused))
      Fail(name, "is not a time (RFC 3339)");
  }
  void Take(const char* name, profile::CountsByName& counts) {
    const json* field = Need(name, &json::is_object, "an object");
    if (field == nullptr) return;
    for (const auto& [key, count] : field->items()) {
      if (!count.is_number_unsigned()) return Fail(name, "has a value that is not a count");
      counts[key] = count.get<uint64_t>();
    }
  }
  // The figures of a table (profile/figure_tables.h).
  template <typename Struct, typename Table>
  void TakeFigures(const Table& table, Struct& figures) {
    profile::ForEachFigure(table, [&](const auto& row) { Take(row.name, figures.*row.value); });
  }
  const json* TakeObject(const char* name) { return Need(name, &json::is_object, "an object"); }
  const json* TakeList(const char* name) { return Need(name, &json::is_array, "a list"); }

 private:
  const json* Value(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto field = object_.find(name);
    return field == object_.end() ? nullptr : &*field;
  }
  const json* Need(const char* name, bool (json::*is)() const noexcept, const char* what) {
    if (!error_.empty()) return nullptr;
    const json* field = Value(name);
    if (field != nullptr && (field->*is)()) return field;
    Fail(name, field == nullptr ? "is missing" : absl::StrCat("is not ", what));
    return nullptr;
  }
  void Fail(const char* name, absl::string_view what) {
    if (!error_.empty()) return;
    error_ = absl::StrCat(where_, where_.empty() || *name == '\0' ? "" : ".", name, " ", what);
  }

  const json& object_;
  const std::string where_;
  std::string& error_;
};

profile::ProcessSummary ReadSummary(const json& object, const std::string& where, std::string& error) {
  profile::ProcessSummary summary;
  Fields fields(object, where, error);
  fields.TakeFigures(profile::kProcessFigures, summary);
  fields.CheckPid(summary.pid);
  return summary;
}

// Reads a list of objects in a document, each with `read`(object, where, error).
template <typename Read>
auto ReadList(const Client& client, const char* target, const json& document, const char* name, Read read)
    -> absl::StatusOr<std::vector<decltype(read(document, std::string(), std::declval<std::string&>()))>> {
  std::vector<decltype(read(document, std::string(), std::declval<std::string&>()))> list;
  std::string error;
  if (const json* objects = Fields(document, "", error).TakeList(name)) {
    for (const json& object : *objects) {
      list.push_back(read(object, absl::StrCat(name, "[", list.size(), "]"), error));
      if (!error.empty()) break;
    }
  }
  if (!error.empty()) return client.Unexpected(target, error);
  return list;
}

}  // namespace

absl::StatusOr<std::vector<ProcessDocument>> GetProcesses(const Client& client, bool* is_restricted) {
  constexpr char kTarget[] = "/processes.json";
  absl::StatusOr<json> document = client.GetJson(kTarget);
  if (!document.ok()) return document.status();
  if (is_restricted != nullptr) {
    const auto found = document->find("restricted");
    // Older daemons do not tell.
    *is_restricted = found == document->end() || *found != false;
  }
  return ReadList(client, kTarget, *document, "processes",
                  [](const json& object, const std::string& where, std::string& error) {
                    return ProcessDocument{ReadSummary(object, where, error), exporter::Json(object)};
                  });
}

absl::StatusOr<ProcessDocument> GetProcess(const Client& client, pid_t pid) {
  absl::StatusOr<std::vector<ProcessDocument>> processes = GetProcesses(client);
  if (!processes.ok()) return processes.status();
  for (ProcessDocument& process : *processes) {
    if (process.value.pid == pid) return std::move(process);
  }
  return absl::NotFoundError(absl::StrCat("process ", pid, " is not recorded; heaptap list shows the recorded ones"));
}

absl::StatusOr<std::vector<EndedDocument>> GetEnded(const Client& client) {
  constexpr char kTarget[] = "/ended.json";
  absl::StatusOr<json> document = client.GetJson(kTarget);
  if (!document.ok()) return document.status();
  return ReadList(client, kTarget, *document, "ended",
                  [](const json& object, const std::string& where, std::string& error) {
                    profile::EndedProcess ended;
                    Fields fields(object, where, error);
                    ended.summary = ReadSummary(object, where, error);
                    fields.TakeFigures(profile::kEndedFigures, ended);
                    return EndedDocument{std::move(ended), exporter::Json(object)};
                  });
}

absl::StatusOr<profile::AllocatorFigures> GetAllocator(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/allocator.json");
  absl::StatusOr<json> document = client.GetJson(target);
  if (!document.ok()) return document.status();
  profile::AllocatorFigures figures;
  std::string error;
  Fields fields(*document, "", error);
  fields.TakeFigures(profile::kAllocatorFigures, figures);
  if (!fields.IsNull("statistics")) {
    if (const json* object = fields.TakeObject("statistics")) {
      Fields(*object, "statistics", error).TakeFigures(profile::kStatisticsFigures, figures.statistics.emplace());
    }
  } else {
    figures.statistics.reset();
  }
  if (!error.empty()) return client.Unexpected(target, error);
  return figures;
}

absl::StatusOr<profile::ResidentBytes> GetResident(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/resident.json");
  absl::StatusOr<json> document = client.GetJson(target);
  if (!document.ok()) return document.status();
  profile::ResidentBytes resident;
  std::string error;
  Fields(*document, "", error).TakeFigures(profile::kResidentFigures, resident);
  if (!error.empty()) return client.Unexpected(target, error);
  return resident;
}

absl::StatusOr<std::string> PostDump(const Client& client, pid_t pid) {
  const std::string target = absl::StrCat("/pid/", pid, "/dump");
  absl::StatusOr<json> document = client.Post(target);
  if (!document.ok()) return document.status();
  std::string path;
  std::string error;
  Fields(*document, "", error).Take("path", path);
  if (!error.empty()) return client.Unexpected(target, error);
  return path;
}

absl::StatusOr<std::vector<Dumped>> PostDumps(const Client& client) {
  constexpr char kTarget[] = "/dump";
  absl::StatusOr<json> document = client.Post(kTarget);
  if (!document.ok()) return document.status();
  return ReadList(client, kTarget, *document, "dumps",
                  [](const json& object, const std::string& where, std::string& error) {
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
