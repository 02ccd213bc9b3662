// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/service_name.h"

#include <limits.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heaptap::process {
namespace {

// A path may have 4 KiB, and a list of processes has thousands of paths.
constexpr size_t kMostPathBytes = 512;

}  // namespace

std::string UnitName(absl::Span<const std::string> control_groups) {
  for (const std::string& group : control_groups) {
    std::vector<absl::string_view> parts = absl::StrSplit(group, '/', absl::SkipEmpty());
    std::reverse(parts.begin(), parts.end());
    for (absl::string_view name : parts) {
      if (name.size() > NAME_MAX || !absl::ConsumeSuffix(&name, ".service") || name.empty()) continue;
      // The manager of a user's own services is not the service.
      if (!absl::StartsWith(name, "user@")) return std::string(name);
    }
  }
  return "";
}

std::string ServiceName(absl::Span<const std::string> control_groups, absl::string_view script,
                        absl::string_view command) {
  std::string unit = UnitName(control_groups);
  if (!unit.empty()) return unit;
  return std::string(script.empty() ? command : script);
}

std::string LongestControlGroup(absl::Span<const std::string> control_groups) {
  absl::string_view longest;
  for (const std::string& group : control_groups) {
    if (group.size() > longest.size()) longest = group;
  }
  if (longest.size() <= kMostPathBytes) return std::string(longest);
  return absl::StrCat("...", longest.substr(longest.size() - kMostPathBytes));
}

}  // namespace heaptap::process
