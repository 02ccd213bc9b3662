// SPDX-License-Identifier: Apache-2.0
//
// Control groups with the memory controller, to which memory is charged (cgroups(7), version 1 or 2).
#ifndef HEAPTAP_USERSPACE_PROCESS_MEMORY_GROUP_H_
#define HEAPTAP_USERSPACE_PROCESS_MEMORY_GROUP_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::process {

// The folder of a process's memory group, from the text of its /proc/PID/cgroup; "" if the process is in none, or in
// one outside this process's control group namespace.
std::string MemoryGroupFolder(absl::string_view text);
// The same of a process. "" also if it is gone.
std::string MemoryGroupFolder(pid_t pid);

// Moves the calling process into the memory group of another one, so that memory is charged there from now on. For a
// child that does nothing else. On error, the process stays in its group.
absl::Status JoinMemoryGroup(pid_t pid);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_MEMORY_GROUP_H_
