// SPDX-License-Identifier: Apache-2.0
#include "userspace/targets/rules.h"

#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <string.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/messages.h"

namespace heaptap::recording {
namespace {

// The kernel's limit (TASK_COMM_LEN without the terminating zero).
constexpr size_t kMaxCommandBytes = 15;
// For a user's entry; those of directory services can be long.
constexpr size_t kMaxUserBytes = 1 << 20;

absl::Status Wrong(absl::string_view rule, absl::string_view word, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("rule \"", base::AsciiOnly(rule), "\": ", base::AsciiOnly(word), ": ", why));
}

// A name takes precedence over a number, as with chown(1).
absl::StatusOr<uid_t> FindUser(const std::string& name) {
  std::string buffer(4096, '\0');
  passwd entry;
  passwd* found = nullptr;
  int error;
  while ((error = getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < kMaxUserBytes) {
    buffer.resize(buffer.size() * 2);
  }
  if (found != nullptr) return found->pw_uid;
  uid_t number = 0;
  if (std::all_of(name.begin(), name.end(), absl::ascii_isdigit) && absl::SimpleAtoi(name, &number)) return number;
  // The errors that mean "no such name" (getpwnam(3)).
  if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM) {
    return absl::InvalidArgumentError("no such user; expected a name or a number");
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot look up the user: ", strerror(error)));
}

bool Matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace

absl::Status Rules::SetCondition(absl::string_view name, const std::string& value, Rule& rule) {
  if (name == "pid") {
    pid_t pid = 0;
    const bool digits = std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
    if (!digits || !absl::SimpleAtoi(value, &pid) || pid == 0) {
      return absl::InvalidArgumentError("expected a number above 0");
    }
    rule.pid = pid;
    return absl::OkStatus();
  }
  if (name == "user") {
    const absl::StatusOr<uid_t> user = FindUser(value);
    if (user.ok()) rule.user = *user;
    return user.status();
  }
  if (name != "comm" && name != "cgroup") return absl::NotFoundError("no such condition");
  if (value.empty()) return absl::InvalidArgumentError("expected a pattern, such as postgres or post*");
  if (name == "comm" && value.find_first_of("*?[\\") == std::string::npos && value.size() > kMaxCommandBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the kernel keeps ", kMaxCommandBytes,
                     " characters of a command; write comm=", base::AsciiOnly(value.substr(0, kMaxCommandBytes))));
  }
  (name == "comm" ? rule.command : rule.control_group) = value;
  return absl::OkStatus();
}

absl::StatusOr<Rules::Rule> Rules::ParseRule(const std::string& line, const Policy& defaults) {
  Rule rule = {.policy = defaults};
  std::set<std::string> seen;
  for (const absl::string_view word : absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
    const auto& [name, value] = pair;
    absl::Status status = SetCondition(name, value, rule);
    if (absl::IsNotFound(status)) status = SetPolicy(name, value, rule.policy);
    if (absl::IsNotFound(status)) {
      return Wrong(line, word,
                   "unknown word; conditions are pid=N, comm=PATTERN, user=NAME, cgroup=PATTERN; settings are "
                   "record, lg-sample, exact, high-water, interval, every, max-live, max-contexts, dump-at-exit");
    }
    if (!status.ok()) return Wrong(line, word, status.message());
    // Both set the rate.
    if (!seen.insert(name == "exact" ? "lg-sample" : name).second) {
      return Wrong(line, word, "given twice");
    }
  }
  if (seen.empty()) {
    return absl::InvalidArgumentError("a rule is empty; expected words such as comm=postgres lg-sample=16");
  }
  return rule;
}

absl::StatusOr<Rules> Rules::Parse(absl::Span<const std::string> lines, const Policy& defaults) {
  Rules rules;
  rules.defaults_ = defaults;
  for (const std::string& line : lines) {
    absl::StatusOr<Rule> rule = ParseRule(line, defaults);
    if (!rule.ok()) return rule.status();
    rules.needs_facts_ |= rule->command.has_value() || rule->user.has_value() || rule->control_group.has_value();
    rules.rules_.push_back(*std::move(rule));
  }
  return rules;
}

bool Rules::Holds(const Rule& rule, const process::Facts& facts) {
  if (rule.pid.has_value() && *rule.pid != facts.pid) return false;
  if (rule.user.has_value() && *rule.user != facts.user) return false;
  if (rule.command.has_value() && !Matches(*rule.command, facts.command)) return false;
  return !rule.control_group.has_value() ||
         std::any_of(facts.control_groups.begin(), facts.control_groups.end(),
                     [&](const std::string& path) { return Matches(*rule.control_group, path); });
}

Policy Rules::Find(const process::Facts& facts) const {
  for (const Rule& rule : rules_) {
    if (Holds(rule, facts)) return rule.policy;
  }
  return defaults_;
}

std::optional<uint32_t> Rules::LeastRate() const {
  std::optional<uint32_t> least;
  for (const Rule& rule : rules_) {
    if (!rule.policy.record || !rule.policy.lg_sample.has_value()) continue;
    least = std::min(least.value_or(HEAPTAP_MAX_LG_SAMPLE), *rule.policy.lg_sample);
  }
  return least;
}

}  // namespace heaptap::recording
