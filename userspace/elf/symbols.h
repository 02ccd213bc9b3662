// SPDX-License-Identifier: Apache-2.0
//
// One data symbol of an ELF file, and its program interpreter.
#ifndef HEAPTAP_USERSPACE_ELF_SYMBOLS_H_
#define HEAPTAP_USERSPACE_ELF_SYMBOLS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::elf {

// Bytes of a symbol table or of its names, which are read in pieces. Chromium's largest has 300 MiB. A file that
// exceeds this is InvalidArgument.
inline constexpr uint64_t kMaxSymbolBytes = 512 << 20;

// The link-time address of the defined data symbol `name` in the ELF file open at `fd`, from its dynamic symbols, else
// from its symbol table. NotFound: no such symbol, or not an ELF file. InvalidArgument: the file is broken.
// Thread-safe.
absl::StatusOr<uint64_t> FindDataSymbol(int fd, absl::string_view name);

// The path of the program interpreter (PT_INTERP) of the ELF file open at `fd`. NotFound: the program is static, or the
// file is not ELF.
absl::StatusOr<std::string> ReadInterpreter(int fd);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_SYMBOLS_H_
