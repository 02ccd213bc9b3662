// SPDX-License-Identifier: Apache-2.0
//
// The arguments that a process was started with.
#ifndef HEAPTAP_USERSPACE_SERVICE_PROCESS_COMMAND_LINE_H_
#define HEAPTAP_USERSPACE_SERVICE_PROCESS_COMMAND_LINE_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace heaptap::service {

// /proc/PID/cmdline, its beginning at least, as the process has it now: any byte but NUL may be in it. Nothing if it is
// gone. The kernel reads the process's memory for that, which a process can make wait for ever, so it is read in a
// confined process with a bound in time; RunConfined's conditions hold (userspace/symbolize/confined.h). The caller
// makes sure that the PID still means the process it has in mind. Thread-safe.
std::vector<std::string> ProcessCommandLine(pid_t pid);

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_PROCESS_COMMAND_LINE_H_
