// SPDX-License-Identifier: Apache-2.0
//
// Which functions an ELF file defines.
#ifndef HEAPTAP_USERSPACE_ELF_FUNCTIONS_H_
#define HEAPTAP_USERSPACE_ELF_FUNCTIONS_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {

// Bytes of a symbol table or of its names. Clang's own takes 60 MiB. A larger table is not read.
inline constexpr uint64_t kMaxFunctionBytes = 256 << 20;

// The requested names that the file defines.
struct DefinedFunctions {
  std::set<std::string> exported;  // for other files (.dynsym)
  std::set<std::string> internal;  // the others (.symtab); a stripped file does not tell
};

// Broken tables are read as far as they go. Thread-safe.
DefinedFunctions FindFunctions(const File& file, absl::Span<const absl::string_view> names);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_FUNCTIONS_H_
