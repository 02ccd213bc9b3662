// SPDX-License-Identifier: Apache-2.0
//
// Code that ends a chain of calls, known by its instructions, as gdb knows some of it: many files have no symbol for
// it, and no information about its frame.
#ifndef HEAPTAP_USERSPACE_ELF_KNOWN_CODE_H_
#define HEAPTAP_USERSPACE_ELF_KNOWN_CODE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {

// mov $15, %rax; syscall: rt_sigreturn(2), whose number is 15. To it signal handlers return, and the kernel puts the
// interrupted registers back. musl and Go's runtime say nothing about this frame.
inline constexpr absl::string_view kSignalReturn("\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", 9);

struct KnownCode {
  enum Kind {
    kSignal,  // kSignalReturn
    // xor %rdi, %rdi; call _exit; hlt: to it the function returns that began a stack of Boost.Context.
    kEnd,
  };
  Kind kind = kSignal;
  uint64_t begin = 0;  // link-time address
  uint64_t end = 0;
};

// Such code, at most 8 pieces, in the first 2 MiB of the code of `file`. What cannot be read is left out. Thread-safe.
std::vector<KnownCode> FindKnownCode(const File& file);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_KNOWN_CODE_H_
