// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/objects.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace heaptap {
namespace {

// In DT_VERSYM: the symbol is only for programs that ask for its version.
constexpr uint16_t kHiddenVersion = 0x8000;

// A variable whose address is in this library. A function would not do, because its address may be in the program.
const char here = 0;

bool Contains(const dl_phdr_info& object, uintptr_t address) {
  for (size_t i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && address >= begin && address - begin < header.p_memsz) return true;
  }
  return false;
}

bool IsDefinition(const ObjectTables& tables, const ElfW(Sym) & symbol, const char* name) {
  const auto binding = ELF64_ST_BIND(symbol.st_info);
  const auto type = ELF64_ST_TYPE(symbol.st_info);
  if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0 || binding == STB_LOCAL) return false;
  // Only a symbol with an address, and not one whose address a resolver must choose first (STT_GNU_IFUNC).
  if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE) return false;
  if (strcmp(tables.strings + symbol.st_name, name) != 0) return false;
  return tables.versions == nullptr || (tables.versions[&symbol - tables.symbols] & kHiddenVersion) == 0;
}

// DT_GNU_HASH: four words, a filter, the buckets, the chains.
constexpr size_t kGnuHashHeader = 4;

const uint32_t* BucketsOf(const ObjectTables& tables) {
  const uint32_t filter_words = tables.gnu_hashes[2];
  return tables.gnu_hashes + kGnuHashHeader + filter_words * sizeof(uint64_t) / sizeof(uint32_t);
}

// Whether the object may define a name with this hash. The filter has two bits for each.
bool PassesFilter(const ObjectTables& tables, uint32_t hash) {
  constexpr uint32_t kBits = 64;
  const auto* filter = reinterpret_cast<const uint64_t*>(tables.gnu_hashes + kGnuHashHeader);
  const uint32_t filter_words = tables.gnu_hashes[2];
  const uint32_t shift = tables.gnu_hashes[3];
  const uint64_t word = filter[hash / kBits % filter_words];
  return (word >> hash % kBits & word >> (hash >> shift) % kBits & 1) != 0;
}

ElfW(Sym) * FindByGnuHash(const ObjectTables& tables, const char* name) {
  uint32_t hash = 5381;
  for (const char* letter = name; *letter != '\0'; letter++) hash = hash * 33 + static_cast<unsigned char>(*letter);
  const uint32_t buckets = tables.gnu_hashes[0];
  const uint32_t first = tables.gnu_hashes[1];
  if (buckets == 0 || !PassesFilter(tables, hash)) return nullptr;
  const uint32_t* bucket = BucketsOf(tables);
  const uint32_t* chain = bucket + buckets;
  uint32_t index = bucket[hash % buckets];
  if (index < first) return nullptr;
  // The lowest bit marks the end of a chain.
  for (;; index++) {
    const uint32_t entry = chain[index - first];
    ElfW(Sym)* symbol = tables.symbols + index;
    if ((entry | 1) == (hash | 1) && IsDefinition(tables, *symbol, name)) return symbol;
    if ((entry & 1) != 0) return nullptr;
  }
}

ElfW(Sym) * FindByHash(const ObjectTables& tables, const char* name) {
  uint32_t hash = 0;
  for (const char* letter = name; *letter != '\0'; letter++) {
    hash = (hash << 4) + static_cast<unsigned char>(*letter);
    hash = (hash ^ (hash >> 24 & 0xf0)) & 0xfffffff;
  }
  const uint32_t buckets = tables.hashes[0];
  const uint32_t* bucket = tables.hashes + 2;
  const uint32_t* chain = bucket + buckets;
  if (buckets == 0) return nullptr;
  for (uint32_t index = bucket[hash % buckets]; index != STN_UNDEF; index = chain[index]) {
    if (IsDefinition(tables, tables.symbols[index], name)) return tables.symbols + index;
  }
  return nullptr;
}

// The first index behind the symbols that DT_GNU_HASH knows, which are the last of the table.
size_t EndOfHashed(const ObjectTables& tables) {
  const uint32_t buckets = tables.gnu_hashes[0];
  const uint32_t first = tables.gnu_hashes[1];
  const uint32_t* bucket = BucketsOf(tables);
  const uint32_t* chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; i++) last = bucket[i] > last ? bucket[i] : last;
  if (last < first) return first;
  while ((chain[last - first] & 1) == 0) last++;
  return last + 1;
}

// A search through the objects, in the order of the dynamic linker's list.
struct Search {
  const char* name;
  uintptr_t behind;  // the search begins behind the object with this address; 0: with the first object
  void* found;
};

int SearchObject(dl_phdr_info* object, size_t, void* opaque) {
  Search& search = *static_cast<Search*>(opaque);
  if (search.behind != 0) {
    if (Contains(*object, search.behind)) search.behind = 0;
    return 0;
  }
  const ElfW(Sym)* symbol = FindDefinition(ReadTables(*object), search.name);
  if (symbol == nullptr) return 0;
  search.found = reinterpret_cast<void*>(object->dlpi_addr + symbol->st_value);
  return 1;
}

void* Find(const char* name, uintptr_t behind) {
  Search search{.name = name, .behind = behind, .found = nullptr};
  dl_iterate_phdr(SearchObject, &search);
  return search.found;
}

}  // namespace

ObjectTables ReadTables(ElfW(Addr) base, const ElfW(Dyn) * dynamic) {
  ObjectTables tables;
  // Some dynamic linkers make these values addresses, except in a section that is read-only; others leave them offsets.
  const auto address = [base](ElfW(Addr) value) { return value < base ? base + value : value; };
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; entry++) {
    const ElfW(Addr) value = entry->d_un.d_val;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<ElfW(Sym)*>(address(value));
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(address(value));
        break;
      case DT_GNU_HASH:
        tables.gnu_hashes = reinterpret_cast<const uint32_t*>(address(value));
        break;
      case DT_HASH:
        tables.hashes = reinterpret_cast<const uint32_t*>(address(value));
        break;
      case DT_VERSYM:
        tables.versions = reinterpret_cast<const uint16_t*>(address(value));
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

ObjectTables ReadTables(const dl_phdr_info& object) {
  for (size_t i = 0; i < object.dlpi_phnum; i++) {
    const ElfW(Phdr)& header = object.dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) continue;
    return ReadTables(object.dlpi_addr, reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + header.p_vaddr));
  }
  return {};
}

ElfW(Sym) * FindDefinition(const ObjectTables& tables, const char* name) {
  if (tables.symbols == nullptr || tables.strings == nullptr) return nullptr;
  if (tables.gnu_hashes != nullptr) return FindByGnuHash(tables, name);
  return tables.hashes != nullptr ? FindByHash(tables, name) : nullptr;
}

size_t CountSymbols(const ObjectTables& tables) {
  if (tables.symbols == nullptr) return 0;
  if (tables.gnu_hashes != nullptr) return EndOfHashed(tables);
  return tables.hashes != nullptr ? tables.hashes[1] : 0;
}

void* FindFirst(const char* name) { return Find(name, 0); }

void* FindNext(const char* name) { return Find(name, reinterpret_cast<uintptr_t>(&here)); }

bool IsThisLibrary(const dl_phdr_info& object) { return Contains(object, reinterpret_cast<uintptr_t>(&here)); }

LoadedObject FindObject(const void* address) {
  struct Place {
    uintptr_t address;
    LoadedObject found;
  } place{reinterpret_cast<uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* opaque) {
        Place& wanted = *static_cast<Place*>(opaque);
        if (!Contains(*object, wanted.address)) return 0;
        wanted.found = {.name = object->dlpi_name, .base = object->dlpi_addr};
        return 1;
      },
      &place);
  return place.found;
}

bool IsSameObject(const void* one, const void* other) {
  const LoadedObject object = FindObject(one);
  const LoadedObject other_object = FindObject(other);
  return object.name != nullptr && other_object.name != nullptr && object.base == other_object.base;
}

}  // namespace heaptap
