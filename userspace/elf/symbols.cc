// SPDX-License-Identifier: Apache-2.0
#include "userspace/elf/symbols.h"

#include <elf.h>
#include <limits.h>
#include <string.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/elf/file.h"

namespace heaptap::elf {
namespace {

// The piece of a symbol table that is in memory at a time.
constexpr uint64_t kSymbolsAtOnce = 16384;

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
  for (uint64_t done = 0; symbols->size - done >= sizeof(Elf64_Sym);) {
    const uint64_t count = std::min((symbols->size - done) / sizeof(Elf64_Sym), kSymbolsAtOnce);
    const uint64_t bytes = count * sizeof(Elf64_Sym);
    absl::StatusOr<std::string> piece = file.Read(symbols->offset + done, bytes, bytes, symbols_name);
    if (!piece.ok()) return piece.status();
    done += bytes;
    for (uint64_t i = 0; i < count; i++) {
      Elf64_Sym symbol;
      memcpy(&symbol, piece->data() + i * sizeof(symbol), sizeof(symbol));
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF) continue;
      if (symbol.st_name >= strings->size || strings->size - symbol.st_name <= name.size()) continue;
      if (++names_read > kMostDataSymbols) {
        return absl::InvalidArgumentError(
            absl::StrCat(symbols_name, ": more than ", kMostDataSymbols, " data symbols"));
      }
      const uint64_t length = name.size() + 1;
      absl::StatusOr<std::string> found = file.Read(strings->offset + symbol.st_name, length, length, strings_name);
      if (!found.ok()) return found.status();
      if (memcmp(found->data(), name.data(), name.size()) == 0 && found->back() == '\0') return symbol.st_value;
    }
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
