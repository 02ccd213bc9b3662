// SPDX-License-Identifier: Apache-2.0
//
// Code that ends a chain of calls, recognized by its instructions, as gdb recognizes some of it: many files have no
// symbol for it, and no information about its frame.
#ifndef HEAPTAP_USERSPACE_ELF_KNOWN_CODE_H_
#define HEAPTAP_USERSPACE_ELF_KNOWN_CODE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {

// mov $15, %rax; syscall: rt_sigreturn(2), whose number is 15. Signal handlers return to this code, and the kernel
// restores the interrupted registers. musl and Go's runtime have no information about this frame.
inline constexpr absl::string_view kSignalReturn("\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", 9);

struct KnownCode {
  enum Kind {
    kSignal,  // kSignalReturn
    // xor %rdi, %rdi; call _exit; hlt: the outermost function of a stack of Boost.Context returns to this code.
    kEnd,
  };
  Kind kind = kSignal;
  uint64_t begin = 0;  // link-time address
  uint64_t end = 0;
};

// The known code in the first 2 MiB of the code of `file`, at most 8 pieces. Code that cannot be read is left out.
// Thread-safe.
std::vector<KnownCode> FindKnownCode(const File& file);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_KNOWN_CODE_H_
