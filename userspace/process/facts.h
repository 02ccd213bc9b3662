// SPDX-License-Identifier: Apache-2.0
//
// The facts about a process that rules can test, and that users see.
//
// The process or its owner chooses these facts, so the texts may hold any byte. Only the path of a control group never
// holds a newline.
#ifndef HEAPTAP_USERSPACE_PROCESS_FACTS_H_
#define HEAPTAP_USERSPACE_PROCESS_FACTS_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::process {

struct Facts {
  pid_t pid = 0;
  std::string command = {};     // /proc/PID/comm
  std::string executable = {};  // path of its program (/proc/PID/exe); "": it has none
  uid_t user = 0;               // the effective one, as ps(1) shows it
  bool is_ending = false;       // as IsEnding (proc_files.h) said before the rest was read
  // The user who may look at the process besides root; none if there is no such user.
  std::optional<uid_t> owner = {};
  // The paths in all hierarchies of control groups, without duplicates, as seen from this process's control group
  // namespace.
  std::vector<std::string> control_groups = {};
  // The path in the hierarchy of version 2; "": there is no such hierarchy.
  std::string unified_group = {};
};

// Reads a bounded number of bytes from /proc/PID, all from the same process. NotFound: the process is gone.
absl::StatusOr<Facts> ReadFacts(pid_t pid);

// The system's name of a thread (/proc/PID/task/TID/comm); none if the thread is gone. May hold any byte but NUL.
std::optional<std::string> ThreadName(pid_t pid, uint32_t tid);

// Writes the facts as text, and reads them back. InvalidArgument: the text has another form. It may be hostile.
std::string Encode(const Facts& facts);
absl::StatusOr<Facts> DecodeFacts(absl::string_view text);

// The paths in the text of /proc/PID/cgroup, which has lines of "NUMBER:CONTROLLERS:PATH" (cgroups(7)).
std::vector<std::string> ControlGroupPaths(absl::string_view text);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_FACTS_H_
