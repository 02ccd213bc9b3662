// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/symbols.h"

#include <elf.h>
#include <limits.h>
#include <string.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {
namespace {

absl::StatusOr<uint64_t> FindIn(const File& file, absl::string_view symbols_name, absl::string_view strings_name,
                                absl::string_view name) {
  const Section* symbols = file.FindSection(symbols_name);
  const Section* strings = file.FindSection(strings_name);
  if (symbols == nullptr || strings == nullptr || symbols->type == SHT_NOBITS) {
    return absl::NotFoundError(absl::StrCat("no ", symbols_name));
  }
  absl::StatusOr<std::string> names = file.Read(strings->offset, strings->size, kMaxSymbolBytes, strings_name);
  if (!names.ok()) return names.status();
  absl::StatusOr<std::string> table = file.Read(symbols->offset, symbols->size, kMaxSymbolBytes, symbols_name);
  if (!table.ok()) return table.status();

  for (size_t at = 0; table->size() - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    memcpy(&symbol, table->data() + at, sizeof(symbol));
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF) continue;
    if (symbol.st_name >= names->size() || names->size() - symbol.st_name <= name.size()) continue;
    const char* at_name = names->data() + symbol.st_name;
    if (memcmp(at_name, name.data(), name.size()) == 0 && at_name[name.size()] == '\0') return symbol.st_value;
  }
  return absl::NotFoundError(absl::StrCat("no symbol ", name));
}

}  // namespace

absl::StatusOr<uint64_t> FindDataSymbol(int fd, absl::string_view name) {
  absl::StatusOr<File> file = File::Open(fd);
  if (!file.ok()) return file.status();
  absl::StatusOr<uint64_t> address = FindIn(*file, ".dynsym", ".dynstr", name);
  if (!absl::IsNotFound(address.status())) return address;
  return FindIn(*file, ".symtab", ".strtab", name);
}

absl::StatusOr<std::string> ReadInterpreter(int fd) {
  absl::StatusOr<File> file = File::Open(fd);
  if (!file.ok()) return file.status();
  for (const Segment& segment : file->segments()) {
    if (segment.type != PT_INTERP) continue;
    absl::StatusOr<std::string> path = file->Read(segment.offset, segment.file_size, PATH_MAX, "the interpreter");
    if (!path.ok()) return path.status();
    path->resize(strnlen(path->data(), path->size()));
    return path;
  }
  return absl::NotFoundError("no program interpreter");
}

}  // namespace heaptap::elf
