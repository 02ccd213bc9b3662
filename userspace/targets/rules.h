// SPDX-License-Identifier: Apache-2.0
//
// Decides which processes are recorded, and how: the first matching rule applies, with defaults for the settings that
// it omits.
//
// A rule is a line of words separated by spaces. Conditions, which must all hold (a rule without any matches all):
//
//   pid=N
//   comm=PATTERN      /proc/PID/comm
//   user=NAME|UID     the effective user
//   cgroup=PATTERN    one of the paths in /proc/PID/cgroup
//
// and settings (SetPolicy in policy.h), each at most once. Patterns are those of fnmatch(3): the whole text must match,
// and `*` also matches '/'; write a space as `?`. A rule without settings selects the defaults and shadows later rules.
//
// Immutable once parsed, so it may be read from any thread.
#ifndef HEAPTAP_USERSPACE_TARGETS_RULES_H_
#define HEAPTAP_USERSPACE_TARGETS_RULES_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/process/facts.h"
#include "userspace/targets/policy.h"

namespace heaptap::recording {

class Rules {
 public:
  // Looks up user names once, here. InvalidArgument: names the rule, the word and what is expected.
  static absl::StatusOr<Rules> Parse(absl::Span<const std::string> lines, const Policy& defaults);

  // The policy of a process. If needs_facts() is false, only facts.pid is used.
  Policy Find(const process::Facts& facts) const;
  // The least interval in the policies of the rules that record processes; none: no such policy sets one.
  std::optional<uint32_t> LeastRate() const;
  // Whether any rule tests more than the PID.
  bool needs_facts() const { return needs_facts_; }

 private:
  struct Rule {
    std::optional<pid_t> pid = {};
    std::optional<std::string> command = {};
    std::optional<uid_t> user = {};
    std::optional<std::string> control_group = {};
    Policy policy = {};
  };
  Rules() = default;
  static absl::StatusOr<Rule> ParseRule(const std::string& line, const Policy& defaults);
  static absl::Status SetCondition(absl::string_view name, const std::string& value, Rule& rule);
  static bool Holds(const Rule& rule, const process::Facts& facts);

  std::vector<Rule> rules_;
  Policy defaults_;
  bool needs_facts_ = false;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TARGETS_RULES_H_
