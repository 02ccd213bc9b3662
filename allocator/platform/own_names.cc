// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/own_names.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <iterator>

#include "allocator/platform/numbers.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"

extern "C" {
// The beginning of this library, from the linker.
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
}

namespace heaptap {
namespace {

// Changes the protection of whole pages, its unit on x86-64.
bool Protect(const void* address, size_t bytes, int protection) {
  const uintptr_t begin = RoundDown(reinterpret_cast<uintptr_t>(address), kPageSize);
  const uintptr_t end = RoundUp(reinterpret_cast<uintptr_t>(address) + bytes, kPageSize);
  return SystemCall(SYS_mprotect, static_cast<long>(begin), static_cast<long>(end - begin), protection) == 0;
}

struct OwnName {
  ElfW(Sym) * symbol;
  const char* name;
  ElfW(Addr) address;  // of this library's function
  ElfW(Addr) next;     // of the next definition; 0: there is none
  bool is_needed;      // an object cannot start without it
};

struct OwnNames {
  // More than any of the libraries exports.
  static constexpr size_t kMaximum = 192;

  ObjectTables tables;
  OwnName names[kMaximum];
  size_t count = 0;
  // The lowest and the highest address of all functions.
  ElfW(Addr) lowest = UINTPTR_MAX;
  ElfW(Addr) highest = 0;

  void Add(const OwnName& name) {
    if (count == kMaximum) return;
    names[count++] = name;
    lowest = name.address < lowest ? name.address : lowest;
    highest = name.address > highest ? name.address : highest;
  }

  OwnName* Find(const ElfW(Sym) * symbol) {
    for (size_t i = 0; i < count; i++) {
      if (names[i].symbol == symbol) return &names[i];
    }
    return nullptr;
  }

  // The hidden name that a reference of this name leads to. nullptr: none.
  const OwnName* FindHidden(ElfW(Addr) target, const char* name) const {
    if (target < lowest || target > highest) return nullptr;
    for (size_t i = 0; i < count; i++) {
      const bool is_hidden = names[i].symbol->st_value == 0;
      if (is_hidden && names[i].address == target && strcmp(names[i].name, name) == 0) return &names[i];
    }
    return nullptr;
  }
};

// Marks the names that the object needs and that no other object defines.
int MarkNeeded(dl_phdr_info* object, size_t, void* opaque) {
  OwnNames& own = *static_cast<OwnNames*>(opaque);
  const ObjectTables tables = ReadTables(*object);
  const size_t end = CountSymbols(tables);
  for (size_t i = 1; i < end; i++) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    if (symbol.st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) != STB_GLOBAL) continue;
    OwnName* name = own.Find(FindDefinition(own.tables, tables.strings + symbol.st_name));
    if (name != nullptr && name->next == 0) name->is_needed = true;
  }
  return 0;
}

bool IsReadOnly(const dl_phdr_info& object, ElfW(Addr) address) {
  for (size_t i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    const ElfW(Addr) begin = object.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_RELRO && address >= begin && address < begin + header.p_memsz) return true;
  }
  return false;
}

void SetReference(const dl_phdr_info& object, ElfW(Addr) * place, ElfW(Addr) target) {
  const bool is_read_only = IsReadOnly(object, reinterpret_cast<ElfW(Addr)>(place));
  if (is_read_only && !Protect(place, sizeof(*place), PROT_READ | PROT_WRITE)) return;
  *place = target;
  if (is_read_only) Protect(place, sizeof(*place), PROT_READ);
}

// Resolves the references of one object again.
int ResolveReferences(dl_phdr_info* object, size_t, void* opaque) {
  const OwnNames& own = *static_cast<const OwnNames*>(opaque);
  const ObjectTables tables = ReadTables(*object);
  for (size_t table = 0; table < std::size(tables.relocations); table++) {
    const ElfW(Rela)* relocations = tables.relocations[table];
    for (size_t i = table == 0 ? tables.relative : 0; relocations != nullptr && i < tables.counts[table]; i++) {
      const ElfW(Rela)& relocation = relocations[i];
      const auto type = ELF64_R_TYPE(relocation.r_info);
      if (type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT && type != R_X86_64_64) continue;
      const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(relocation.r_info)];
      auto* place = reinterpret_cast<ElfW(Addr)*>(object->dlpi_addr + relocation.r_offset);
      const OwnName* name = own.FindHidden(*place, tables.strings + symbol.st_name);
      if (name != nullptr) SetReference(*object, place, name->next);
    }
  }
  return 0;
}

}  // namespace

void HideNames(bool (*hides)(const char* name)) {
  const ElfW(Addr) base = reinterpret_cast<ElfW(Addr)>(&__ehdr_start);
  OwnNames own;
  own.tables = ReadTables(base, _DYNAMIC);
  const size_t end = CountSymbols(own.tables);
  for (size_t i = 1; i < end; i++) {
    ElfW(Sym)& symbol = own.tables.symbols[i];
    const char* name = own.tables.strings + symbol.st_name;
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0 || !hides(name)) continue;
    own.Add({&symbol, name, base + symbol.st_value, reinterpret_cast<ElfW(Addr)>(FindNext(name)), false});
  }
  if (own.count == 0) return;
  dl_iterate_phdr(MarkNeeded, &own);
  const size_t bytes = end * sizeof(ElfW(Sym));
  if (!Protect(own.tables.symbols, bytes, PROT_READ | PROT_WRITE)) return;
  for (size_t i = 0; i < own.count; i++) {
    if (!own.names[i].is_needed) own.names[i].symbol->st_value = 0;
  }
  Protect(own.tables.symbols, bytes, PROT_READ);
  dl_iterate_phdr(ResolveReferences, &own);
}

}  // namespace heaptap
