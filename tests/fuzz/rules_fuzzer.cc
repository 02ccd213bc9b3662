// SPDX-License-Identifier: Apache-2.0
//
// heaptap::recording::Rules of any text on processes of any kind: a rule is refused with a reason, or decides for every
// process. The process's command and control groups (the text of /proc/PID/cgroup) are its owner's choice.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "heaptap/contract.h"
#include "tests/fuzz/check.h"
#include "userspace/recording/rules.h"

namespace {

using heaptap::process::ControlGroupPaths;
using heaptap::process::Facts;
using heaptap::recording::Policy;
using heaptap::recording::Rules;

// Words that rules are made of, now and then, so that values are reached.
std::string AnyRule(FuzzedDataProvider& data) {
  constexpr const char* kWords[] = {"pid=",
                                    "comm=",
                                    "user=",
                                    "cgroup=",
                                    "record=off",
                                    "lg-sample=",
                                    "exact",
                                    "interval=",
                                    "every=",
                                    "high-water=",
                                    "max-live=",
                                    "max-contexts=",
                                    "dump-at-exit=fatal",
                                    " ",
                                    "*",
                                    "[a-z]",
                                    "root",
                                    "off",
                                    "10m",
                                    "1K",
                                    "18446744073709551615"};
  std::string rule;
  while (data.ConsumeBool()) {
    rule += data.ConsumeBool() ? data.PickValueInArray(kWords) : data.ConsumeRandomLengthString(8);
  }
  return rule;
}

void CheckPolicy(const heaptap::recording::Policy& policy) {
  if (policy.lg_sample.has_value()) Check(*policy.lg_sample <= HEAPTAP_MAX_LG_SAMPLE);
  Check(policy.every == absl::ZeroDuration() || policy.every >= absl::Seconds(1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  std::vector<std::string> lines;
  do {
    lines.push_back(AnyRule(data));
  } while (data.ConsumeBool());
  heaptap::process::Facts facts = {.pid = data.ConsumeIntegralInRange(1, 1 << 22)};
  facts.command = data.ConsumeRandomLengthString(16);
  facts.user = data.ConsumeIntegral<uint32_t>();
  const std::string cgroup = data.ConsumeRemainingBytesAsString();
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
