// SPDX-License-Identifier: Apache-2.0
#include "userspace/json/json.h"

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace heaptap::json {
namespace {

TEST(Json, WritesEachKindOfValue) {
  const Json document = {{"null", Json()},
                         {"bool", true},
                         {"least", std::numeric_limits<int64_t>::min()},
                         {"most", std::numeric_limits<uint64_t>::max()},
                         {"double", 0.5},
                         {"text", "a"},
                         {"view", absl::string_view("bc", 1)},
                         {"none", std::optional<bool>()},
                         {"some", std::optional<uint32_t>(7)},
                         {"texts", std::vector<std::string>{"x", "y"}},
                         {"counts", std::map<std::string, uint64_t>{{"n", 1}}},
                         {"object", {{"member", false}}}};
  EXPECT_EQ(
      document.Text(),
      R"({"null":null,"bool":true,"least":-9223372036854775808,"most":18446744073709551615,"double":0.5,)"
      R"("text":"a","view":"b","none":null,"some":7,"texts":["x","y"],"counts":{"n":1},"object":{"member":false}})");
}

TEST(Json, MembersKeepTheirOrderAndAreReplacedInPlace) {
  Json document = {{"z", 1}, {"a", 2}};
  document.Set("z", "new");
  document.SetAll({{"m", 3}, {"a", 4}});
  EXPECT_EQ(document.Text(), R"({"z":"new","a":4,"m":3})");
}

TEST(Json, ListsAndEmptyValues) {
  Json list = Json::List();
  EXPECT_EQ(list.Text(), "[]");
  list.Add(1);
  list.Add({{"x", Json::List()}});
  EXPECT_EQ(list.Text(), R"([1,{"x":[]}])");
  Json begins_as_null;
  EXPECT_EQ(begins_as_null.Text(), "null");
  begins_as_null.Set("x", 1);
  EXPECT_EQ(begins_as_null.Text(), R"({"x":1})");
}

TEST(Json, ACopyIsAValueOfItsOwn) {
  Json original = {{"x", 1}};
  const Json copy = original;
  original.Set("x", 2);
  EXPECT_EQ(copy.Text(), R"({"x":1})");
  EXPECT_EQ(original.Text(), R"({"x":2})");
}

TEST(Json, AnyBytesBecomeUtf8AndLayoutsDiffer) {
  const Json document = {{"name", "\xff\n\xc3\xa4"}};
  EXPECT_EQ(document.Text(), "{\"name\":\"\xef\xbf\xbd\\n\xc3\xa4\"}");
  EXPECT_EQ(document.Text({.indent = 2, .only_ascii = true}), "{\n  \"name\": \"\\ufffd\\n\\u00e4\"\n}");
  EXPECT_EQ(document.Text({.indent = 1, .indent_character = '\t'}), "{\n\t\"name\": \"\xef\xbf\xbd\\n\xc3\xa4\"\n}");
}

TEST(Json, WhatWasRead) {
  EXPECT_EQ(Json(nlohmann::json::parse(R"({"b": [1, null], "a": "x"})")).Text(), R"({"a":"x","b":[1,null]})");
}

}  // namespace
}  // namespace heaptap::json
