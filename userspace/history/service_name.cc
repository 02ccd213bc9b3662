// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/service_name.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heaptap::history {

std::string ServiceName(absl::Span<const std::string> control_groups, absl::string_view command) {
  for (const std::string& group : control_groups) {
    std::vector<absl::string_view> parts = absl::StrSplit(group, '/', absl::SkipEmpty());
    std::reverse(parts.begin(), parts.end());
    for (absl::string_view name : parts) {
      // The manager of a user's own services is not the service.
      if (absl::ConsumeSuffix(&name, ".service") && !name.empty() && !absl::StartsWith(name, "user@")) {
        return std::string(name);
      }
    }
  }
  return std::string(command);
}

}  // namespace heaptap::history
