// SPDX-License-Identifier: Apache-2.0
//
// Checks what this machine and this user allow, one by one. The kernel's features are in kernel_features.h.
#ifndef HEAPTAP_USERSPACE_DOCTOR_CHECKUP_H_
#define HEAPTAP_USERSPACE_DOCTOR_CHECKUP_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace heaptap::daemon {

struct Finding {
  std::string subject;  // "kernel", "CAP_BPF", ...
  // OK, or the reason; PermissionDenied if more rights would help, NotFound for a process.
  absl::Status status;
  std::string detail;  // if OK: what was found
  std::string remedy;  // if not: what to do
};

// Checks the machine and this process's rights. Loads the programs and attaches a probe; leaves nothing behind.
std::vector<Finding> CheckMachine();
// Checks whether a process can be recorded.
std::vector<Finding> CheckProcess(pid_t pid);

}  // namespace heaptap::daemon

#endif  // HEAPTAP_USERSPACE_DOCTOR_CHECKUP_H_
