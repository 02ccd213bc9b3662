// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "userspace/base/require.h"

namespace heaptap::json {

using nlohmann::ordered_json;

Json::Json() : value_(std::make_unique<ordered_json>()) {}
Json::Json(const Json& other) : value_(std::make_unique<ordered_json>(*other.value_)) {}
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) {
  value_ = std::make_unique<ordered_json>(*other.value_);
  return *this;
}
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(double value) : value_(std::make_unique<ordered_json>(value)) {}
Json::Json(std::string text) : value_(std::make_unique<ordered_json>(std::move(text))) {}
Json::Json(absl::string_view text) : Json(std::string(text)) {}
Json::Json(const char* text) : Json(std::string(text)) {}
Json::Json(std::initializer_list<JsonMember> members) : value_(std::make_unique<ordered_json>(ordered_json::object())) {
  for (const JsonMember& member : members) Set(member.name, std::move(member.value));
}
Json::Json(const std::map<std::string, uint64_t>& members) : value_(std::make_unique<ordered_json>(members)) {}
Json::Json(const std::vector<std::string>& texts) : value_(std::make_unique<ordered_json>(texts)) {}
Json::Json(const nlohmann::json& value) : value_(std::make_unique<ordered_json>(value)) {}

Json Json::List() {
  Json list;
  *list.value_ = ordered_json::array();
  return list;
}

void Json::Set(absl::string_view name, Json value) {
  HEAPTAP_REQUIRE(value_->is_object() || value_->is_null());
  (*value_)[std::string(name)] = std::move(*value.value_);
}

void Json::SetAll(const Json& object) { value_->update(*object.value_); }
void Json::Add(Json value) {
  HEAPTAP_REQUIRE(value_->is_array());
  value_->push_back(std::move(*value.value_));
}

std::string Json::Text(const JsonLayout& layout) const {
  return value_->dump(layout.indent, layout.indent_character, layout.only_ascii,
                      ordered_json::error_handler_t::replace);
}

void Json::SetBool(bool value) { *value_ = value; }
void Json::SetSigned(int64_t value) { *value_ = value; }
void Json::SetUnsigned(uint64_t value) { *value_ = value; }

}  // namespace heaptap::json
