// SPDX-License-Identifier: Apache-2.0
//
// Files that are there whole or not at all.
#ifndef HEAPTAP_USERSPACE_CLI_WHOLE_FILE_H_
#define HEAPTAP_USERSPACE_CLI_WHOLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::cli {

// Makes `contents` those of the file at `path`, mode 0600; one that is there is replaced. It is written under another
// name in the same folder first. "-": stdout. FailedPrecondition: it cannot be written, or is no regular file: a device
// or a link is not to be replaced.
absl::Status WriteWholeFile(const std::string& path, absl::string_view contents);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WHOLE_FILE_H_
