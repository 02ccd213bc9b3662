// SPDX-License-Identifier: Apache-2.0
//
// Reads a symbol table (SHT_SYMTAB, SHT_DYNSYM) piece by piece. Thread-compatible, like File.
#ifndef HEAPTAP_USERSPACE_ELF_EACH_SYMBOL_H_
#define HEAPTAP_USERSPACE_ELF_EACH_SYMBOL_H_

#include <elf.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {

// Calls `visit` with one symbol after the other, until it returns false. `name`: of the section, for errors. REQUIRES:
// the section is in the file (not SHT_NOBITS). The caller bounds its size.
absl::Status ForEachSymbol(const File& file, const Section& section, absl::string_view name,
                           absl::FunctionRef<bool(const Elf64_Sym&)> visit);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_EACH_SYMBOL_H_
