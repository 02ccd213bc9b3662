// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/ask/control.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace heaptap::cli {

absl::StatusOr<process::Preloaded> FindControllable(pid_t pid) {
  absl::StatusOr<process::Preloaded> found = process::PreloadedFinder().Find(pid);
  if (!found.ok()) return found;
  const std::string name = absl::StrCat("process ", pid, " (", found->command, ")");
  if (found->control_address == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " cannot be controlled: its allocator is not libheaptap.so and has no control block"));
  }
  if (found->collector != 0) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is recorded by another heaptap (process ",
                                                      found->collector,
                                                      "): if that is a daemon, pass its socket with "
                                                      "--socket; otherwise end it first"));
  }
  return found;
}

}  // namespace heaptap::cli
