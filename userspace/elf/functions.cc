// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/functions.h"

#include <elf.h>

#include "absl/status/statusor.h"
#include "userspace/elf/each_symbol.h"

namespace heaptap::elf {
namespace {

bool IsFunction(const Elf64_Sym& symbol) {
  const auto type = ELF64_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF;
}

std::set<std::string> FindIn(const File& file, absl::string_view symbols_name, absl::string_view strings_name,
                             absl::Span<const absl::string_view> names) {
  std::set<std::string> found;
  const Section* symbols = file.FindSection(symbols_name);
  const Section* strings = file.FindSection(strings_name);
  if (symbols == nullptr || strings == nullptr || symbols->type == SHT_NOBITS) return found;
  if (symbols->size > kMaxFunctionBytes) return found;
  const absl::StatusOr<std::string> texts = file.Read(strings->offset, strings->size, kMaxFunctionBytes, strings_name);
  if (!texts.ok()) return found;
  // What was found before an error counts.
  (void)ForEachSymbol(file, *symbols, symbols_name, [&](const Elf64_Sym& symbol) {
    if (!IsFunction(symbol) || symbol.st_name >= texts->size()) return true;
    const absl::string_view rest = absl::string_view(*texts).substr(symbol.st_name);
    for (const absl::string_view name : names) {
      if (rest.size() > name.size() && rest[name.size()] == '\0' && rest.substr(0, name.size()) == name) {
        found.insert(std::string(name));
      }
    }
    return true;
  });
  return found;
}

}  // namespace

DefinedFunctions FindFunctions(const File& file, absl::Span<const absl::string_view> names) {
  DefinedFunctions found = {.exported = FindIn(file, ".dynsym", ".dynstr", names),
                            .internal = FindIn(file, ".symtab", ".strtab", names)};
  for (const std::string& name : found.exported) found.internal.erase(name);
  return found;
}

}  // namespace heaptap::elf
