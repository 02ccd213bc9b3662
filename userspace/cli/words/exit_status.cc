// SPDX-License-Identifier: Apache-2.0
#include "userspace/cli/words/exit_status.h"

#include "userspace/base/messages.h"

namespace heaptap::cli {

int Report(const absl::Status& status) {
  if (status.ok()) return kSuccess;
  base::Say(status.message());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kNotFound:
      return kNoTarget;
    case absl::StatusCode::kPermissionDenied:
      return kPermission;
    default:
      return kFailure;
  }
}

}  // namespace heaptap::cli
