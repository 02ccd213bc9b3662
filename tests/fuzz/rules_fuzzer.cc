// SPDX-License-Identifier: Apache-2.0
//
// heaptap::recording::Rules of any text on processes of any kind: a rule is refused with a reason, or decides for every
// process. The process's command and control groups (the text of /proc/PID/cgroup) are its owner's choice.
//
// An input is a text: rules, an empty line, and lines about the process: its command, user and PID, then control
// groups.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "heaptap/contract.h"
#include "tests/fuzz/check.h"
#include "userspace/targets/rules.h"

namespace {

using heaptap::process::ControlGroupPaths;
using heaptap::process::Facts;
using heaptap::recording::Policy;
using heaptap::recording::Rules;

void CheckPolicy(const heaptap::recording::Policy& policy) {
  if (policy.lg_sample.has_value()) Check(*policy.lg_sample <= HEAPTAP_MAX_LG_SAMPLE);
  Check(policy.every == absl::ZeroDuration() || policy.every >= absl::Seconds(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits("\n\n", 1));
  const std::vector<std::string> lines = absl::StrSplit(parts.first, '\n');
  const std::vector<std::string> words = absl::StrSplit(parts.second, absl::MaxSplits('\n', 3));
  heaptap::process::Facts facts = {.pid = 1, .command = words[0]};
  if (words.size() > 1 && !absl::SimpleAtoi(words[1], &facts.user)) facts.user = 0;
  if (words.size() > 2 && !absl::SimpleAtoi(words[2], &facts.pid)) facts.pid = 1;
  const std::string cgroup = words.size() > 3 ? words[3] : "";
  facts.control_groups = heaptap::process::ControlGroupPaths(cgroup);
  for (const std::string& path : facts.control_groups) {
    Check(absl::StrContains(cgroup, path) && !absl::StrContains(path, "\n"));
  }

  const absl::StatusOr<heaptap::recording::Rules> rules =
      heaptap::recording::Rules::Parse(lines, heaptap::recording::Policy());
  if (!rules.ok()) {
    Check(absl::IsInvalidArgument(rules.status()) && !rules.status().message().empty());
    return 0;
  }
  CheckPolicy(rules->Find(facts));
  CheckPolicy(rules->Find({.pid = facts.pid}));
  return 0;
}
