// SPDX-License-Identifier: Apache-2.0
//
// Reads what figures_json.h writes, and other JSON objects, and reports the errors in them.
//
// A reader is for one thread.
#ifndef HEAPTAP_USERSPACE_JSON_FIGURES_READER_H_
#define HEAPTAP_USERSPACE_JSON_FIGURES_READER_H_

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/profile/figure_tables.h"
#include "userspace/profile/figures.h"

namespace heaptap::json {

// How to treat a missing field. kKeepsItsValue: for documents of older versions, which lack some fields.
enum class Missing { kIsAnError, kKeepsItsValue };

// Reads fields of one object and remembers the first error.
class Fields {
 public:
  // `where`: the place of the object in its document, for messages.
  Fields(const nlohmann::json& object, std::string where, std::string& error, Missing missing = Missing::kIsAnError)
      : object_(object), where_(std::move(where)), error_(error), missing_(missing) {
    if (!object.is_object()) Fail("", "is not an object");
  }

  bool Has(const char* name) const { return Value(name) != nullptr && !Value(name)->is_null(); }
  bool IsNull(const char* name) const { return Value(name) != nullptr && Value(name)->is_null(); }

  void Take(const char* name, std::string& value) {
    if (const nlohmann::json* field = Need(name, &nlohmann::json::is_string, "a string"))
      value = field->get<std::string>();
  }
  void Take(const char* name, bool& value) {
    if (const nlohmann::json* field = Need(name, &nlohmann::json::is_boolean, "true or false"))
      value = field->get<bool>();
  }
  void Take(const char* name, double& value) {
    if (const nlohmann::json* field = Need(name, &nlohmann::json::is_number, "a number")) value = field->get<double>();
  }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void Take(const char* name, Integer& value) {
    const nlohmann::json* field = Need(name, &nlohmann::json::is_number_unsigned, "a non-negative whole number");
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
    const nlohmann::json* field = Need(name, &nlohmann::json::is_string, "a string");
    std::string unused;
    if (field != nullptr && !absl::ParseTime(absl::RFC3339_full, field->get<std::string>(), &value, &unused))
      Fail(name, "is not a time (RFC 3339)");
  }
  void Take(const char* name, profile::CountsByName& counts) {
    const nlohmann::json* field = Need(name, &nlohmann::json::is_object, "an object");
    if (field == nullptr) return;
    for (const auto& [key, count] : field->items()) {
      if (!count.is_number_unsigned()) return Fail(name, "has a value that is not a count");
      counts[key] = count.get<uint64_t>();
    }
  }
  // The figures of a table (profile/figure_tables.h).
  template <const auto& kTable, typename Struct>
  void TakeFigures(Struct& figures) {
    profile::ForEachFigure<kTable>([&](const auto& row) { Take(row.name, figures.*row.value); });
  }
  const nlohmann::json* TakeObject(const char* name) { return Need(name, &nlohmann::json::is_object, "an object"); }
  const nlohmann::json* TakeList(const char* name) { return Need(name, &nlohmann::json::is_array, "a list"); }

 private:
  const nlohmann::json* Value(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto field = object_.find(name);
    return field == object_.end() ? nullptr : &*field;
  }
  const nlohmann::json* Need(const char* name, bool (nlohmann::json::*is)() const noexcept, const char* what) {
    if (!error_.empty()) return nullptr;
    const nlohmann::json* field = Value(name);
    if (field != nullptr && (field->*is)()) return field;
    if (field == nullptr && missing_ == Missing::kKeepsItsValue) return nullptr;
    Fail(name, field == nullptr ? "is missing" : absl::StrCat("is not ", what));
    return nullptr;
  }
  void Fail(const char* name, absl::string_view what) {
    if (!error_.empty()) return;
    error_ = absl::StrCat(where_, where_.empty() || *name == '\0' ? "" : ".", name, " ", what);
  }

  const nlohmann::json& object_;
  const std::string where_;
  std::string& error_;
  const Missing missing_;
};

// `where`, `error` and `missing`: as for Fields.
profile::ProcessSummary ReadSummary(const nlohmann::json& object, const std::string& where, std::string& error,
                                    Missing missing = Missing::kIsAnError);
profile::EndedProcess ReadEnded(const nlohmann::json& object, const std::string& where, std::string& error,
                                Missing missing = Missing::kIsAnError);

}  // namespace heaptap::json

#endif  // HEAPTAP_USERSPACE_JSON_FIGURES_READER_H_
