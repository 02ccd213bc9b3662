// SPDX-License-Identifier: Apache-2.0
//
// JSON values for writing: null, true and false, numbers, texts, lists, and objects whose members keep their order.
//
// Only json.cc and files that read JSON include the JSON library, whose header takes five seconds to compile.
//
// Not thread-safe. A moved-from value may only be assigned to or destroyed.
#ifndef HEAPTAP_USERSPACE_JSON_JSON_H_
#define HEAPTAP_USERSPACE_JSON_JSON_H_

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

namespace heaptap::json {

// "schema_version" of the documents that the daemon and the commands write. It changes when a field is removed or
// changes its meaning, not when one is added.
inline constexpr int kSchemaVersion = 1;

struct JsonMember;

struct JsonLayout {
  int indent = -1;  // blanks per level, with one value per line; -1: everything on one line
  char indent_character = ' ';
  bool only_ascii = false;  // escapes control characters and everything that is not ASCII
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
  // The member of that name, or null.
  template <typename T>
  Json(const std::optional<T>& value) : Json(value.has_value() ? Json(*value) : Json()) {}
  // The same value, from the JSON library.
  explicit Json(const nlohmann::json& value);

  static Json List();

  // Sets the member of that name. REQUIRES: an object, or null, which becomes an object.
  void Set(absl::string_view name, Json value);
  // Sets each member of `object`.
  void SetAll(const Json& object);
  // REQUIRES: a list.
  void Add(Json value);

  // Texts may have any bytes; those that are not UTF-8 are replaced, because JSON is UTF-8.
  std::string Text(const JsonLayout& layout = {}) const;

 private:
  void SetBool(bool value);
  void SetSigned(int64_t value);
  void SetUnsigned(uint64_t value);

  std::unique_ptr<nlohmann::ordered_json> value_;
};

struct JsonMember {
  absl::string_view name;
  mutable Json value;  // mutable, to be moved out of an initializer list
};

}  // namespace heaptap::json

#endif  // HEAPTAP_USERSPACE_JSON_JSON_H_
