// SPDX-License-Identifier: Apache-2.0
//
// The arguments that a process was started with.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROCESS_COMMAND_LINE_H_
#define HEAPTAP_USERSPACE_SERVICE_PROCESS_COMMAND_LINE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace heaptap::service {

// /proc/PID/cmdline, at least its beginning; may hold any byte but NUL. Empty if the process is gone. The kernel reads
// it from the process's memory, and the process can block that for ever: so a confined child with a time limit reads
// it, and RunConfined's conditions hold (userspace/symbolize/confined.h). The caller must check afterwards that the PID
// still means the same process. Thread-safe.
std::vector<std::string> ProcessCommandLine(pid_t pid);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_COMMAND_LINE_H_
