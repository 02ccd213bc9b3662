// SPDX-License-Identifier: Apache-2.0
//
// heaptap's exit statuses, documented in heaptap(1) and in `heaptap --help`.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_EXIT_STATUS_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_EXIT_STATUS_H_

#include "absl/status/status.h"

namespace heaptap::cli {

enum ExitStatus {
  kSuccess = 0,
  kFailure = 1,
  kUsage = 2,
  kNoTarget = 3,         // no such process, or none that can be recorded
  kPermission = 4,       // the message names the missing capability
  kNotExecutable = 126,  // run: the same as a shell's
  kNotFound = 127,       // run: the same as a shell's
  kSignalled = 128,      // run: plus the signal that ended the program
};

// Prints an error to stderr and returns its exit status.
int Report(const absl::Status& status);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_EXIT_STATUS_H_
