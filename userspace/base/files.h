// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing whole files. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_FILES_H_
#define HEAPTAP_USERSPACE_BASE_FILES_H_

#include "absl/strings/string_view.h"

namespace heaptap::base {

// Writes all of `contents` to the beginning of `fd`. Returns 0, or an errno value of write(2).
int WriteAll(int fd, absl::string_view contents);

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_FILES_H_
