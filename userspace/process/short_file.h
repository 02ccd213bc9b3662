// SPDX-License-Identifier: Apache-2.0
//
// Short files of the kernel, in /proc and /sys. Thread-safe.
#ifndef HEAPTAP_USERSPACE_PROCESS_SHORT_FILE_H_
#define HEAPTAP_USERSPACE_PROCESS_SHORT_FILE_H_

#include <string>

namespace heaptap::process {

// The first 8 KiB of the file in one read, so that all bytes are from one moment. "": it cannot be read.
std::string ReadShortFile(const std::string& path);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_SHORT_FILE_H_
