// SPDX-License-Identifier: Apache-2.0
//
// heaptap's exit statuses, documented in the README and in `heaptap --help`.
#ifndef HEAPTAP_USERSPACE_CLI_EXIT_STATUS_H_
#define HEAPTAP_USERSPACE_CLI_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace heaptap::cli {

enum ExitStatus {
  kSuccess = 0,
  kFailure = 1,
  kUsage = 2,
  kNoTarget = 3,         // no such process, or none that can be recorded
  kPermission = 4,       // the message names the capability
  kNotExecutable = 126,  // run: as a shell does
  kNotFound = 127,
  kSignalled = 128,  // run: plus the signal that ended the program
};

// The exit status for an error, after saying it on stderr.
int Report(const absl::Status& status);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_EXIT_STATUS_H_
