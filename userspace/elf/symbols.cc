// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/symbols.h"

#include <elf.h>
#include <limits.h>
#include <string.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/elf/each_symbol.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {
namespace {

// Data symbols whose names are read. The largest libraries have some hundred thousand.
constexpr uint64_t kMostDataSymbols = 1 << 20;

absl::StatusOr<uint64_t> FindIn(const File& file, absl::string_view symbols_name, absl::string_view strings_name,
                                absl::string_view name) {
  const Section* symbols = file.FindSection(symbols_name);
  const Section* strings = file.FindSection(strings_name);
  if (symbols == nullptr || strings == nullptr || symbols->type == SHT_NOBITS) {
    return absl::NotFoundError(absl::StrCat("no ", symbols_name));
  }
  if (symbols->size > kMaxSymbolBytes || strings->size > kMaxSymbolBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(symbols_name, ": more than the limit of ", kMaxSymbolBytes, " bytes"));
  }
  uint64_t names_read = 0;
  const uint64_t length = name.size() + 1;
  absl::StatusOr<uint64_t> value = absl::NotFoundError(absl::StrCat("no symbol ", name));
  const absl::Status read = ForEachSymbol(file, *symbols, symbols_name, [&](const Elf64_Sym& symbol) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF) return true;
    if (symbol.st_name >= strings->size || strings->size - symbol.st_name <= name.size()) return true;
    if (++names_read > kMostDataSymbols) {
      value = absl::InvalidArgumentError(absl::StrCat(symbols_name, ": more than ", kMostDataSymbols, " data symbols"));
      return false;
    }
    const absl::StatusOr<std::string> text = file.Read(strings->offset + symbol.st_name, length, length, strings_name);
    if (!text.ok()) {
      value = text.status();
      return false;
    }
    if (memcmp(text->data(), name.data(), name.size()) != 0 || text->back() != '\0') return true;
    value = symbol.st_value;
    return false;
  });
  return read.ok() ? value : read;
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
