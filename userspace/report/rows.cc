// SPDX-License-Identifier: Apache-2.0
#include "userspace/report/rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/profile/frame_names.h"
#include "userspace/profile/source_frames.h"
#include "userspace/report/readable.h"

namespace heaptap::report {

size_t RowNumbers::At(FrameId id) {
  const auto [entry, is_new] = by_frame_.try_emplace(id, 0);
  if (is_new) entry->second = AtName(NameOf(profile_, profile_.frame(id), show_));
  return entry->second;
}

size_t RowNumbers::AtName(const std::string& name) {
  const auto [entry, is_new] = by_name_.try_emplace(name, names_.size());
  if (is_new) names_.push_back(name);
  return entry->second;
}

const char* WordFor(Value value) {
  switch (value) {
    case Value::kAllocated:
      return "allocated";
    case Value::kFreed:
      return "freed";
    case Value::kLive:
      break;
  }
  return "live";
}

std::string NameOfUnknown() { return profile::kUnknownCallPath; }

std::string NameOf(const NamedProfile& profile, const NamedFrame& frame, const Show& show) {
  if (show.by == By::kLibrary) {
    const absl::string_view library = profile::FileName(profile.text(frame.library));
    return library.empty() ? "[no file]" : std::string(library);
  }
  const absl::string_view function = profile.text(frame.function);
  std::string name = show.full_names || !frame.has_symbol ? std::string(function) : ReadableName(function);
  if (show.by == By::kLine && frame.file != 0) {
    const absl::string_view file = profile.text(frame.file);
    absl::StrAppend(&name, " ", show.full_names ? file : profile::FileName(file), ":", frame.line);
  }
  return name;
}

std::vector<Path> RootsOf(absl::Span<const Path> paths) {
  std::vector<Path> roots;
  roots.reserve(paths.size());
  for (const Path& path : paths) {
    Path& root = roots.emplace_back();
    if (!path.frames.empty()) root.frames.push_back(path.frames.back());
    root.measures = path.measures;
  }
  return roots;
}

std::vector<Row> Rows(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show, bool by_total) {
  RowNumbers numbers(profile, show);
  std::vector<Row> rows;
  std::vector<size_t> seen;  // by row: the number of the last path in which it was, plus 1
  for (size_t number = 0; number < paths.size(); number++) {
    const Path& path = paths[number];
    const Measure& measure = Of(path.measures, show.value);
    const auto add = [&](size_t row, bool is_innermost) {
      rows.resize(numbers.size());
      seen.resize(numbers.size(), 0);
      if (is_innermost) rows[row].self += measure;
      if (std::exchange(seen[row], number + 1) == number + 1) return;  // recursion
      rows[row].total += measure;
      rows[row].paths++;
    };
    if (path.frames.empty()) add(numbers.AtName(NameOfUnknown()), true);
    for (size_t i = 0; i < path.frames.size(); i++) add(numbers.At(path.frames[i]), i == 0);
  }
  for (size_t row = 0; row < rows.size(); row++) rows[row].name = numbers.Name(row);
  std::ranges::sort(rows, [&](const Row& a, const Row& b) {
    const double of_a = std::fabs(Of(by_total ? a.total : a.self, show.unit));
    const double of_b = std::fabs(Of(by_total ? b.total : b.self, show.unit));
    return of_a != of_b ? of_a > of_b : a.name < b.name;
  });
  return rows;
}

std::vector<Path> MergePaths(const NamedProfile& profile, std::vector<Path> paths, const Show& show) {
  RowNumbers numbers(profile, show);
  absl::flat_hash_map<std::vector<size_t>, size_t> known;
  std::vector<Path> merged;
  for (Path& path : paths) {
    std::vector<size_t> names;
    names.reserve(path.frames.size());
    for (const FrameId frame : path.frames) names.push_back(numbers.At(frame));
    const auto [entry, is_new] = known.try_emplace(std::move(names), merged.size());
    if (is_new) {
      merged.push_back(std::move(path));
    } else {
      merged[entry->second].measures += path.measures;
    }
  }
  std::ranges::stable_sort(merged, [&](const Path& a, const Path& b) {
    return std::fabs(Of(Of(a.measures, show.value), show.unit)) > std::fabs(Of(Of(b.measures, show.value), show.unit));
  });
  return merged;
}

}  // namespace heaptap::report
