// SPDX-License-Identifier: Apache-2.0
#include "userspace/views/dot.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "userspace/report/text.h"

namespace heaptap::report {
namespace {

// Sizes of letters, in points.
constexpr double kSmallest = 8;
constexpr double kLargest = 40;

// graphviz reads quoted texts of less than 16,384 bytes, and quoting can double them.
constexpr size_t kMostBytes = 8000;

// The text, cut before a character of UTF-8 that does not fit.
absl::string_view Cut(absl::string_view text) {
  constexpr auto is_inner_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  if (text.size() <= kMostBytes) return text;
  size_t end = kMostBytes;
  while (end > 0 && is_inner_byte(text[end])) end--;
  return text.substr(0, end);
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

}  // namespace

std::string Dot(const NamedProfile& profile, absl::Span<const Path> paths, const Subject& subject, const Show& show,
                size_t most, double smallest) {
  const double total = Of(Of(profile.total(), show.value), show.unit);
  const std::vector<Row> rows = Rows(profile, paths, show, true);
  std::string text =
      absl::StrCat("digraph ", Quoted(Cut(subject.name)), " {\n  node [shape=box, fontname=monospace];\n");
  absl::StrAppend(&text, "  label=", Quoted(absl::StrCat(Cut(subject.name), ": ", Figure(total, show.unit))), ";\n");
  absl::flat_hash_map<std::string, size_t> shown;
  for (const Row& row : rows) {
    if (shown.size() == most || std::fabs(Of(row.total, show.unit)) < std::fabs(total) * smallest / 100) break;
    const double share = total == 0 ? 0 : std::clamp(Of(row.self, show.unit) / total, 0.0, 1.0);
    const std::string figures =
        absl::StrCat(Figure(Of(row.self, show.unit), show.unit), " (", Percent(Of(row.self, show.unit), total), ") of ",
                     Figure(Of(row.total, show.unit), show.unit), " (", Percent(Of(row.total, show.unit), total), ")");
    // graphviz has its own escape for a newline.
    absl::StrAppendFormat(&text, "  n%d [label=%s, fontsize=%.0f];\n", shown.size(),
                          absl::StrReplaceAll(Quoted(absl::StrCat(Cut(row.name), "\n", figures)), {{"\n", "\\n"}}),
                          kSmallest + (kLargest - kSmallest) * std::sqrt(share));
    shown.emplace(row.name, shown.size());
  }
  RowNumbers names(profile, show);
  std::map<std::pair<size_t, size_t>, double> edges;
  for (const Path& path : paths) {
    std::set<std::pair<size_t, size_t>> seen;  // each call counts once in a path, though it may be recursive
    for (size_t i = 0; i + 1 < path.frames.size(); i++) {
      const auto callee = shown.find(names.Name(names.At(path.frames[i])));
      const auto caller = shown.find(names.Name(names.At(path.frames[i + 1])));
      if (callee == shown.end() || caller == shown.end()) continue;
      if (!seen.emplace(caller->second, callee->second).second) continue;
      edges[{caller->second, callee->second}] += Of(Of(path.measures, show.value), show.unit);
    }
  }
  for (const auto& [ends, value] : edges) {
    const double share = total == 0 ? 0 : std::clamp(std::fabs(value / total), 0.0, 1.0);
    absl::StrAppendFormat(&text, "  n%d -> n%d [label=%s, penwidth=%.1f];\n", ends.first, ends.second,
                          Quoted(Figure(value, show.unit)), 1 + 5 * share);
  }
  return absl::StrCat(text, "}\n");
}

}  // namespace heaptap::report
