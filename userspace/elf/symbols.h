// SPDX-License-Identifier: Apache-2.0
//
// Looking up one data symbol of an ELF file.
#ifndef HEAPTAP_USERSPACE_ELF_SYMBOLS_H_
#define HEAPTAP_USERSPACE_ELF_SYMBOLS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::elf {

// Bytes of a symbol table or of its names; pieces of them are read. Chromium's largest is 300 MiB, and a file beyond
// the bound counts as one that has no symbols.
inline constexpr uint64_t kMaxSymbolBytes = 512 << 20;

// The link-time address of the defined data symbol `name` in the ELF file open at `fd`, from its dynamic symbols, else
// from its symbol table. NotFound if there is none or the file is not ELF; InvalidArgument if it is broken.
// Thread-safe.
absl::StatusOr<uint64_t> FindDataSymbol(int fd, absl::string_view name);

// The path of the program interpreter (PT_INTERP) of the ELF file open at `fd`. NotFound if it has none: a static
// program, or not an ELF file.
absl::StatusOr<std::string> ReadInterpreter(int fd);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_SYMBOLS_H_
