// SPDX-License-Identifier: Apache-2.0
//
// Control of one process without a daemon, by writing to its control block.
#ifndef HEAPTAP_USERSPACE_CLI_ASK_CONTROL_H_
#define HEAPTAP_USERSPACE_CLI_ASK_CONTROL_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/process/preloaded.h"

namespace heaptap::cli {

// Finds a process whose control block this program may write, because no collector records the process. NotFound: no
// such process, or it has no sampled allocator. FailedPrecondition: the process has no control block, or a living
// collector, named in the message, records it.
absl::StatusOr<process::Preloaded> FindControllable(pid_t pid);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_ASK_CONTROL_H_
