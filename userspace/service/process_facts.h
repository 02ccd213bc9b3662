// SPDX-License-Identifier: Apache-2.0
//
// The facts about a process that rules can test.
//
// The process or its owner chooses them: the texts may hold any byte, except a newline in the path of a control group.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROCESS_FACTS_H_
#define HEAPTAP_USERSPACE_SERVICE_PROCESS_FACTS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::service {

struct ProcessFacts {
  pid_t pid = 0;
  std::string command = {};  // /proc/PID/comm
  uid_t user = 0;            // the effective one, as ps(1) shows it
  // The paths in all hierarchies of control groups, without duplicates, as seen from this process's control group
  // namespace.
  std::vector<std::string> control_groups = {};
};

// Reads a bounded number of bytes from /proc/PID, all from the same process. NotFound: the process is gone.
absl::StatusOr<ProcessFacts> ReadProcessFacts(pid_t pid);

// The paths in the text of /proc/PID/cgroup, lines of "NUMBER:CONTROLLERS:PATH" (cgroups(7)).
std::vector<std::string> ControlGroupPaths(absl::string_view text);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_FACTS_H_
