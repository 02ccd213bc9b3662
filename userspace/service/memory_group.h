// SPDX-License-Identifier: Apache-2.0
//
// Who pays for memory: control groups with the memory controller (cgroups(7)), of version 1 or 2.
#ifndef HEAPTAP_USERSPACE_SERVICE_MEMORY_GROUP_H_
#define HEAPTAP_USERSPACE_SERVICE_MEMORY_GROUP_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::service {

// The folder of a process's memory group, from the text of its /proc/PID/cgroup; "" if it is in none, or in one that
// this process's control group name space does not show.
std::string MemoryGroupFolder(absl::string_view text);

// Moves the calling process into the memory group of another one, so that memory that it fills from now on is charged
// there. For a child that does nothing else. PermissionDenied, or as the kernel has it: it stays where it is.
absl::Status JoinMemoryGroup(pid_t pid);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_MEMORY_GROUP_H_
