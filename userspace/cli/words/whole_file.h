// SPDX-License-Identifier: Apache-2.0
//
// Writes files completely or not at all.
#ifndef HEAPTAP_USERSPACE_CLI_WORDS_WHOLE_FILE_H_
#define HEAPTAP_USERSPACE_CLI_WORDS_WHOLE_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::cli {

// Who may read a file.
enum class Readers {
  kOwner,  // mode 0600, for profiles with the addresses of a process, which help to attack it
  kUsual,  // the mode of the user's file that is replaced, else what the umask leaves of 0666
};

// Writes `contents` to the file at `path`, under a temporary name in the same folder first; an existing file is
// replaced. "-": stdout. FailedPrecondition: the file cannot be written, or the path is not a regular file: devices and
// links are never replaced. Not thread-safe: it looks at the umask by setting it.
absl::Status WriteWholeFile(const std::string& path, absl::string_view contents, Readers readers = Readers::kOwner);

}  // namespace heaptap::cli

#endif  // HEAPTAP_USERSPACE_CLI_WORDS_WHOLE_FILE_H_
