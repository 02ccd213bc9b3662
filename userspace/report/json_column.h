// SPDX-License-Identifier: Apache-2.0
//
// A JSON list of numbers. A Json value for each of a million numbers would take a hundred MiB. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_JSON_COLUMN_H_
#define HEAPTAP_USERSPACE_REPORT_JSON_COLUMN_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace heaptap::report {

class JsonColumn {
 public:
  explicit JsonColumn(absl::string_view name) : text_(absl::StrCat("\"", name, "\":[")) {}
  void Add(int64_t number) { absl::StrAppend(&text_, std::exchange(separator_, ","), number); }
  void AddNull() { absl::StrAppend(&text_, std::exchange(separator_, ","), "null"); }
  // Bytes, objects and variances, with enough digits that a quotient of two of them has all digits that people see.
  void AddEstimate(double value) {
    const double whole = std::round(value);
    if (value == whole || std::fabs(whole) > kMaxWithFraction) {
      absl::StrAppendFormat(&text_, "%s%.0f", std::exchange(separator_, ","), whole + 0.0);
    } else {
      absl::StrAppendFormat(&text_, "%s%.*g", std::exchange(separator_, ","), kDigits, value);
    }
  }
  // The list as a member of an object.
  std::string Text() const { return text_ + "]"; }

 private:
  static constexpr double kMaxWithFraction = 1e6;
  static constexpr int kDigits = 7;
  std::string text_;
  const char* separator_ = "";
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_JSON_COLUMN_H_
