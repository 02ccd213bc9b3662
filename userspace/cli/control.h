// SPDX-License-Identifier: Apache-2.0
//
// Orders to one process: through the daemon, or, where there is none, straight into its control block.
#ifndef HEAPTAP_USERSPACE_CLI_CONTROL_H_
#define HEAPTAP_USERSPACE_CLI_CONTROL_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/service/preloaded.h"

namespace heaptap::cli {

// A process whose control block may be written, because no collector records it. NotFound: no such process, or none
// with a sampled allocator. FailedPrecondition: it has no control block, or a living collector records it, which the
// message names.
absl::StatusOr<service::Preloaded> FindControllable(pid_t pid);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_CONTROL_H_
