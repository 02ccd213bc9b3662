// SPDX-License-Identifier: Apache-2.0
//
// Formats figures and tables for people. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_HUMAN_H_
#define HEAPTAP_USERSPACE_REPORT_HUMAN_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "userspace/profile/figures.h"

namespace heaptap::report {

// Stands for an unknown value.
inline constexpr char kUnknown[] = "-";

// With one digit after the point and a binary unit: "512", "1.5K", "20.0G". May be negative.
std::string HumanBytes(double bytes);
// The two largest units: "3d04h", "5h12m", "2m03s", "42s". A negative duration counts as 0.
std::string HumanDuration(absl::Duration duration);
// "0", "10 ring-buffer", or "12 (ring-buffer 10, stacks 2)".
std::string HumanLosses(const profile::CountsByName& losses);
// A command made printable and cut to the width of a table's column.
std::string HumanCommand(absl::string_view command);

// "OOM kill", "signal 9", "exit 0".
std::string HowItEnded(const profile::EndedProcess& process);

// A table with minimal column widths, two spaces apart, without trailing spaces.
class Table {
 public:
  struct Column {
    std::string title;
    bool is_number = false;  // aligned to the right
    int spare = 0;           // above 0: left out if there is no room, the one with the highest number first
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One text for each column, printable.
  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Columns that can be spared are left out until a line has at most `width` characters; 0: none.
  std::string Text(size_t width = 0) const;

 private:
  size_t WidthOf(size_t column) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Lines of "name  value" with aligned values.
std::string NamedValues(const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_HUMAN_H_
