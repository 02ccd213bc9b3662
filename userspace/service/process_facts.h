// SPDX-License-Identifier: Apache-2.0
//
// What rules may ask of a process before it is recorded.
//
// All of it is the process's or its owner's choice: any byte may be in the texts, but a newline in a control group's
// path.
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
  // Its paths in all hierarchies of control groups, without doubles; as seen from this process's control group name
  // space.
  std::vector<std::string> control_groups = {};
};

// Reads a bounded number of bytes from /proc/PID, all of the same process. NotFound: it is gone.
absl::StatusOr<ProcessFacts> ReadProcessFacts(pid_t pid);

// The paths in the text of /proc/PID/cgroup, lines of "NUMBER:CONTROLLERS:PATH" (cgroups(7)).
std::vector<std::string> ControlGroupPaths(absl::string_view text);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_FACTS_H_
