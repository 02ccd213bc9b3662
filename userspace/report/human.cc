// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/human.h"

#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/base/messages.h"
#include "userspace/profile/figures.h"

namespace heaptap::report {
namespace {

// More than the 15 bytes that the kernel keeps of a command's name.
constexpr size_t kMaxCommand = 24;

constexpr size_t kBetweenColumns = 2;

std::string Padded(const std::string& text, size_t width, bool right) {
  const std::string blanks(width - std::min(width, text.size()), ' ');
  return right ? blanks + text : text + blanks;
}

}  // namespace

std::string HumanBytes(double bytes) {
  constexpr char kUnits[] = "KMGTPE";
  // Larger numbers are errors, and would print hundreds of digits.
  constexpr double kMax = 0x1p64;
  if (std::isnan(bytes)) return kUnknown;
  double number = std::clamp(bytes, -kMax, kMax);
  // Numbers that would be rounded up to the next unit use that unit.
  if (std::fabs(number) < 1023.5) return absl::StrFormat("%.0f", number);
  const char* unit = kUnits;
  number /= 1024;
  while (std::fabs(number) >= 1023.95 && unit[1] != '\0') {
    number /= 1024;
    unit++;
  }
  return absl::StrFormat("%.1f%c", number, *unit);
}

std::string HumanDuration(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  if (seconds < 60) return absl::StrFormat("%ds", seconds);
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds / 3600 % 24);
}

std::string HumanLosses(const profile::CountsByName& losses) {
  uint64_t total = 0;
  std::vector<std::string> reasons;
  std::string only;
  for (const auto& [reason, count] : losses) {
    if (count == 0) continue;
    // Saturates instead of wrapping around.
    total = count > UINT64_MAX - total ? UINT64_MAX : total + count;
    only = base::AsciiOnly(reason);
    reasons.push_back(absl::StrCat(only, " ", count));
  }
  if (total == 0) return "0";
  if (reasons.size() == 1) return absl::StrCat(total, " ", only);
  return absl::StrCat(total, " (", absl::StrJoin(reasons, ", "), ")");
}

std::string HowItEnded(const profile::EndedProcess& process) {
  if (process.by_oom_kill) return "OOM kill";
  if (WIFSIGNALED(process.status)) return absl::StrCat("signal ", WTERMSIG(process.status));
  return absl::StrCat("exit ", WEXITSTATUS(process.status));
}

std::string HumanCommand(absl::string_view command) {
  if (command.empty()) return kUnknown;
  return base::AsciiOnly(command.substr(0, kMaxCommand));
}

size_t Table::WidthOf(size_t column) const {
  size_t width = columns_[column].title.size();
  for (const std::vector<std::string>& row : rows_) width = std::max(width, row[column].size());
  return width;
}

std::string Table::Text(size_t width) const {
  struct Shown {
    size_t column;
    size_t width;
    int spare;
  };
  std::vector<Shown> shown;
  size_t needed = 0;
  for (size_t i = 0; i < columns_.size(); i++) {
    shown.push_back({i, WidthOf(i), columns_[i].spare});
    needed += shown.back().width + (i == 0 ? 0 : kBetweenColumns);
  }
  while (width != 0 && needed > width) {
    const auto most = std::ranges::max_element(shown, {}, &Shown::spare);
    if (most == shown.end() || most->spare == 0) break;
    needed -= most->width + kBetweenColumns;
    shown.erase(most);
  }
  std::string text;
  const auto add = [&](auto cell) {
    std::string line;
    for (const Shown& one : shown) {
      if (!line.empty()) line.append(kBetweenColumns, ' ');
      line += Padded(cell(one.column), one.width, columns_[one.column].is_number);
    }
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  };
  add([this](size_t i) { return columns_[i].title; });
  for (const std::vector<std::string>& row : rows_) add([&row](size_t i) { return row[i]; });
  return text;
}

std::string NamedValues(const std::vector<std::pair<std::string, std::string>>& values) {
  size_t width = 0;
  for (const auto& [name, value] : values) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : values) absl::StrAppend(&text, Padded(name, width, false), "  ", value, "\n");
  return text;
}

}  // namespace heaptap::report
