// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_USERSPACE_PROCESS_MOVED_CODE_H_
#define HEAPTAP_USERSPACE_PROCESS_MOVED_CODE_H_

#include <sys/types.h>

#include <string>

namespace heaptap::process {

// The text of ReadMaps (maps.h), with moved code shown as a mapping of its file, if some of the code's bytes equal the
// file's. Moved code is code that the process has moved to anonymous memory at its own address (elf/moved_code.h).
// Reads the memory of the process only if a mapping looks like moved code. Thread-safe.
std::string NameMovedCode(pid_t pid, std::string maps);

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_MOVED_CODE_H_
