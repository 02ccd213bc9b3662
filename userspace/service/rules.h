// SPDX-License-Identifier: Apache-2.0
//
// Which processes are recorded, and how: the first rule whose conditions hold decides, the defaults fill in what it
// does not say.
//
// A rule is a line of words, split at blanks. Conditions, which must all hold (a rule without one holds for all):
//
//   pid=N
//   comm=PATTERN      /proc/PID/comm
//   user=NAME|UID     the effective user
//   cgroup=PATTERN    one of the paths in /proc/PID/cgroup
//
// and settings (SetPolicy in policy.h), each at most once. A pattern is fnmatch(3)'s: the whole text must match, `*`
// also matches '/'; a blank is written `?`. A rule without settings makes the defaults hold where later rules would.
//
// Immutable once parsed, so it may be read from any thread.
#ifndef HEAPTAP_USERSPACE_SERVICE_RULES_H_
#define HEAPTAP_USERSPACE_SERVICE_RULES_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/service/policy.h"
#include "userspace/service/process_facts.h"

namespace heaptap::service {

class Rules {
 public:
  // Names of users are looked up here, once. InvalidArgument: names the rule, the word, and what is right.
  static absl::StatusOr<Rules> Parse(absl::Span<const std::string> lines, const Policy& defaults);

  // As a process has been found to be; where needs_facts() is false, its PID is enough.
  Policy Find(const ProcessFacts& facts) const;
  // Whether any rule asks for more than a PID.
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
  static bool Holds(const Rule& rule, const ProcessFacts& facts);

  std::vector<Rule> rules_;
  Policy defaults_;
  bool needs_facts_ = false;
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_RULES_H_
