// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/names.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <iterator>

#include "allocator/core/size_class.h"
#include "allocator/guest/host.h"
#include "allocator/platform/system.h"

extern "C" {
// The beginning of this library, from the linker.
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
}

namespace heaptap {
namespace {

constexpr const char* kNames[] = {
#define HEAPTAP_NAME(result, entry, name, parameters, arguments) name,
    HEAPTAP_HOST_EXTENDED_FUNCTIONS(HEAPTAP_NAME) HEAPTAP_HOST_NEW_FUNCTIONS(HEAPTAP_NAME)
#undef HEAPTAP_NAME
};

// The tables of a loaded object that this file needs.
struct Tables {
  ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* hashes = nullptr;     // DT_GNU_HASH
  const ElfW(Rela) * relocations[2]{};  // of data and of the procedure linkage table
  size_t counts[2]{};
  size_t relative = 0;  // how many of the first are at its beginning and name no symbol
};

Tables ReadTables(ElfW(Addr) base, const ElfW(Dyn) * entry) {
  Tables tables;
  // The dynamic linker has made some of these values addresses, and left them offsets where the section is read-only.
  const auto address = [base](ElfW(Addr) value) { return value < base ? base + value : value; };
  for (; entry->d_tag != DT_NULL; entry++) {
    const ElfW(Addr) value = entry->d_un.d_val;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<ElfW(Sym)*>(address(value));
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(address(value));
        break;
      case DT_GNU_HASH:
        tables.hashes = reinterpret_cast<const uint32_t*>(address(value));
        break;
      case DT_RELA:
        tables.relocations[0] = reinterpret_cast<const ElfW(Rela)*>(address(value));
        break;
      case DT_RELASZ:
        tables.counts[0] = value / sizeof(ElfW(Rela));
        break;
      case DT_RELACOUNT:
        tables.relative = value;
        break;
      case DT_JMPREL:
        tables.relocations[1] = reinterpret_cast<const ElfW(Rela)*>(address(value));
        break;
      case DT_PLTRELSZ:
        tables.counts[1] = value / sizeof(ElfW(Rela));
        break;
      default:
        break;
    }
  }
  return tables;
}

uint32_t Hash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; name++) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// The symbol that an object defines under this name. nullptr: none. The format is that of DT_GNU_HASH.
ElfW(Sym) * FindSymbol(const Tables& tables, const char* name) {
  const uint32_t buckets = tables.hashes[0];
  const uint32_t first = tables.hashes[1];
  const uint32_t filter_words = tables.hashes[2];
  constexpr size_t kHeader = 4;
  const uint32_t* bucket = tables.hashes + kHeader + filter_words * sizeof(ElfW(Addr)) / sizeof(uint32_t);
  const uint32_t* chain = bucket + buckets;
  const uint32_t hash = Hash(name);
  uint32_t index = bucket[hash % buckets];
  if (index < first) return nullptr;
  // The lowest bit marks the end of a chain.
  for (;; index++) {
    const uint32_t entry = chain[index - first];
    ElfW(Sym)* symbol = tables.symbols + index;
    if ((entry | 1) == (hash | 1) && strcmp(tables.strings + symbol->st_name, name) == 0) return symbol;
    if ((entry & 1) != 0) return nullptr;
  }
}

bool Protect(const void* address, size_t bytes, int protection) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) & ~(kPageSize - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(address) + bytes + kPageSize - 1) & ~(kPageSize - 1);
  return SystemCall(SYS_mprotect, static_cast<long>(begin), static_cast<long>(end - begin), protection) == 0;
}

// The addresses of the guest's functions that are hidden.
struct Hidden {
  ElfW(Addr) addresses[std::size(kNames)];
  size_t count = 0;

  bool Contains(ElfW(Addr) address) const {
    for (size_t i = 0; i < count; i++) {
      if (addresses[i] == address) return true;
    }
    return false;
  }
};

bool IsReadOnly(const dl_phdr_info& object, ElfW(Addr) address) {
  for (size_t i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    const ElfW(Addr) begin = object.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_GNU_RELRO && address >= begin && address < begin + header.p_memsz) return true;
  }
  return false;
}

// Sets a reference to null.
void ResetReference(const dl_phdr_info& object, ElfW(Addr) * place) {
  const bool is_read_only = IsReadOnly(object, reinterpret_cast<ElfW(Addr)>(place));
  if (is_read_only && !Protect(place, sizeof(*place), PROT_READ | PROT_WRITE)) return;
  *place = 0;
  if (is_read_only) Protect(place, sizeof(*place), PROT_READ);
}

// Resets the weak references of one object. Others stay: the program could not have started without the name.
int ResetReferences(dl_phdr_info* object, size_t, void* opaque) {
  const Hidden& hidden = *static_cast<const Hidden*>(opaque);
  const ElfW(Dyn)* dynamic = nullptr;
  for (size_t i = 0; i < object->dlpi_phnum; i++) {
    if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
  }
  if (dynamic == nullptr) return 0;
  const Tables tables = ReadTables(object->dlpi_addr, dynamic);
  for (size_t table = 0; table < std::size(tables.relocations); table++) {
    const ElfW(Rela)* relocations = tables.relocations[table];
    for (size_t i = table == 0 ? tables.relative : 0; relocations != nullptr && i < tables.counts[table]; i++) {
      const ElfW(Rela)& relocation = relocations[i];
      const auto type = ELF64_R_TYPE(relocation.r_info);
      if (type != R_X86_64_GLOB_DAT && type != R_X86_64_JUMP_SLOT && type != R_X86_64_64) continue;
      const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(relocation.r_info)];
      auto* place = reinterpret_cast<ElfW(Addr)*>(object->dlpi_addr + relocation.r_offset);
      if (ELF64_ST_BIND(symbol.st_info) == STB_WEAK && symbol.st_shndx == SHN_UNDEF && hidden.Contains(*place)) {
        ResetReference(*object, place);
      }
    }
  }
  return 0;
}

}  // namespace

void HideMissingNames() {
  const ElfW(Addr) base = reinterpret_cast<ElfW(Addr)>(&__ehdr_start);
  const Tables own = ReadTables(base, _DYNAMIC);
  Hidden hidden;
  for (const char* name : kNames) {
    ElfW(Sym)* symbol = HasHostFunction(name) ? nullptr : FindSymbol(own, name);
    if (symbol == nullptr) continue;
    // Where data is limited (RLIMIT_DATA), the system may refuse. The name stays then.
    if (!Protect(symbol, sizeof(*symbol), PROT_READ | PROT_WRITE)) continue;
    hidden.addresses[hidden.count++] = base + symbol->st_value;
    symbol->st_value = 0;
    Protect(symbol, sizeof(*symbol), PROT_READ);
  }
  if (hidden.count != 0) dl_iterate_phdr(ResetReferences, &hidden);
}

}  // namespace heaptap
