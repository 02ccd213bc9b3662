// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/control.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace heaptap::cli {

absl::StatusOr<service::Preloaded> FindControllable(pid_t pid) {
  absl::StatusOr<service::Preloaded> found = service::PreloadedFinder().Find(pid);
  if (!found.ok()) return found;
  const std::string name = absl::StrCat("process ", pid, " (", found->command, ")");
  if (found->control_address == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " has a sampled allocator without a control block; it cannot be steered"));
  }
  if (found->collector != 0) {
    return absl::FailedPreconditionError(absl::StrCat(name, " is recorded by heaptap ", found->collector,
                                                      "; if that is a daemon, name its socket with --socket, else end "
                                                      "it first"));
  }
  return found;
}

}  // namespace heaptap::cli
