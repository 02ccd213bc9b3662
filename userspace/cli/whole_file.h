// SPDX-License-Identifier: Apache-2.0
//
// Writes files completely or not at all.
#ifndef HEAPTAP_USERSPACE_CLI_WHOLE_FILE_H_
#define HEAPTAP_USERSPACE_CLI_WHOLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::cli {

// Writes `contents` to the file at `path`, mode 0600, under a temporary name in the same folder first; an existing file
// is replaced. "-": stdout. FailedPrecondition: the file cannot be written, or the path is not a regular file: devices
// and links are never replaced.
absl::Status WriteWholeFile(const std::string& path, absl::string_view contents);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WHOLE_FILE_H_
