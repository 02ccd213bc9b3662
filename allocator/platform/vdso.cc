// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/vdso.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

namespace heaptap {
namespace {

constexpr char kName[] = "__vdso_clock_gettime";

template <typename Type>
const Type* At(uintptr_t address) {
  return reinterpret_cast<const Type*>(address);
}

// Addresses in memory from the dynamic section; 0: absent.
struct Tables {
  uintptr_t symbols;
  uintptr_t names;
  uintptr_t hash;
};

Tables ReadDynamicSection(const Elf64_Dyn* entry, uintptr_t base) {
  Tables tables{};
  for (; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) tables.symbols = base + entry->d_un.d_ptr;
    if (entry->d_tag == DT_STRTAB) tables.names = base + entry->d_un.d_ptr;
    if (entry->d_tag == DT_HASH) tables.hash = base + entry->d_un.d_ptr;
  }
  return tables;
}

}  // namespace

ClockFunction FindVdsoClock(const void* image) {
  if (image == nullptr) return nullptr;
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(image);
  uintptr_t base = begin;
  const Elf64_Dyn* dynamic = nullptr;
  const auto* segment = At<Elf64_Phdr>(begin + header->e_phoff);
  for (const auto* end = segment + header->e_phnum; segment != end; segment++) {
    if (segment->p_type == PT_LOAD) base = begin + segment->p_offset - segment->p_vaddr;
    if (segment->p_type == PT_DYNAMIC) dynamic = At<Elf64_Dyn>(begin + segment->p_offset);
  }
  if (dynamic == nullptr) return nullptr;
  const Tables tables = ReadDynamicSection(dynamic, base);
  if (tables.symbols == 0 || tables.names == 0 || tables.hash == 0) return nullptr;
  // The second word of the hash table is the number of symbols.
  const uint32_t count = At<uint32_t>(tables.hash)[1];
  for (const auto* symbol = At<Elf64_Sym>(tables.symbols); symbol != At<Elf64_Sym>(tables.symbols) + count; symbol++) {
    if (symbol->st_shndx == SHN_UNDEF || strcmp(At<char>(tables.names + symbol->st_name), kName) != 0) continue;
    return reinterpret_cast<ClockFunction>(base + symbol->st_value);
  }
  return nullptr;
}

}  // namespace heaptap
