// SPDX-License-Identifier: Apache-2.0
//
// JSON values to be written: null, true and false, numbers, texts, lists, and objects whose members keep their order.
//
// The JSON library itself is included where JSON is read, and in json.cc: its header costs a file five seconds of
// compile time.
//
// Not thread safe. A value that was moved from may only be assigned to or destroyed.
#ifndef HEAPTAP_USERSPACE_EXPORT_JSON_H_
#define HEAPTAP_USERSPACE_EXPORT_JSON_H_

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace heaptap::exporter {

struct JsonMember;

struct JsonLayout {
  int indent = -1;  // of each level, one value per line; -1: all on one line
  char indent_character = ' ';
  bool only_ascii = false;  // whatever is not ASCII is escaped, control characters among it
};

class Json {
 public:
  Json();  // null
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  template <std::integral T>
  Json(T value) : Json() {
    if constexpr (std::same_as<T, bool>) {
      SetBool(value);
    } else if constexpr (std::signed_integral<T>) {
      SetSigned(value);
    } else {
      SetUnsigned(value);
    }
  }
  Json(double value);
  Json(std::string text);
  Json(absl::string_view text);
  Json(const char* text);
  // An object with these members.
  Json(std::initializer_list<JsonMember> members);
  Json(const std::map<std::string, uint64_t>& members);
  Json(const std::vector<std::string>& texts);
  // Null if there is none.
  template <typename T>
  Json(const std::optional<T>& value) : Json(value.has_value() ? Json(*value) : Json()) {}
  // The same value, as it was read.
  explicit Json(const nlohmann::json& value);

  static Json List();

  // REQUIRES: an object or null, which becomes one. Replaces a member of that name.
  void Set(absl::string_view name, Json value);
  // The same for each member of `object`.
  void SetAll(const Json& object);
  // REQUIRES: a list.
  void Add(Json value);

  // Texts may have any bytes: those that are not UTF-8 are replaced, as JSON is.
  std::string Text(const JsonLayout& layout = {}) const;

 private:
  void SetBool(bool value);
  void SetSigned(int64_t value);
  void SetUnsigned(uint64_t value);

  std::unique_ptr<nlohmann::ordered_json> value_;
};

struct JsonMember {
  absl::string_view name;
  mutable Json value;  // moved out of the list that it is written in
};

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_JSON_H_
