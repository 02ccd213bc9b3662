// SPDX-License-Identifier: Apache-2.0
//
// The code to which signal handlers return: it enters the kernel, which puts the interrupted registers back. Most files
// have no symbol for it, and some have no information about its frame, as musl and Go's runtime. gdb knows it by its
// instructions, too.
#ifndef HEAPTAP_USERSPACE_ELF_SIGNAL_RETURN_H_
#define HEAPTAP_USERSPACE_ELF_SIGNAL_RETURN_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {

// mov $15, %rax; syscall: rt_sigreturn(2). 15 is its number.
inline constexpr absl::string_view kSignalReturn("\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", 9);

// The link-time addresses of such code, at most 8, in the first 2 MiB of the code of `file`. What cannot be read is
// left out. Thread-safe.
std::vector<uint64_t> FindSignalReturns(const File& file);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_SIGNAL_RETURN_H_
