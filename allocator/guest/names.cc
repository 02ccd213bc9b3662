// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/names.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <iterator>

#include "allocator/core/size_class.h"
#include "allocator/guest/host.h"
#include "allocator/platform/objects.h"
#include "allocator/platform/system.h"

extern "C" {
// The beginning of this library, from the linker.
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
}

namespace heaptap {
namespace {

constexpr const char* kNames[] = {
#define HEAPTAP_NAME(result, entry, name, parameters, arguments) name,
    HEAPTAP_HOST_C_FUNCTIONS(HEAPTAP_NAME) HEAPTAP_HOST_EXTENDED_FUNCTIONS(HEAPTAP_NAME)
        HEAPTAP_HOST_NEW_FUNCTIONS(HEAPTAP_NAME)
#undef HEAPTAP_NAME
};

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
  const ObjectTables tables = ReadTables(*object);
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
  const ObjectTables own = ReadTables(base, _DYNAMIC);
  Hidden hidden;
  for (const char* name : kNames) {
    ElfW(Sym)* symbol = HasHostFunction(name) ? nullptr : FindDefinition(own, name);
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
