// SPDX-License-Identifier: Apache-2.0
//
// The objects that are loaded into the process, the program and its shared libraries, and the names that they define.
// It answers what dlsym and dladdr answer, without them: before glibc 2.34 they are in libdl, which a program need not
// have. It also allocates nothing, not even a text for a name that is not found.
//
// Any thread. Waits only for a thread that changes the dynamic linker's list (dl_iterate_phdr), never for one that runs
// constructors in dlopen. Not in a signal handler. Does not touch errno.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_OBJECTS_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_OBJECTS_H_

#include <link.h>
#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// The tables of a loaded object, from its dynamic section.
struct ObjectTables {
  ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hashes = nullptr;  // DT_GNU_HASH
  const uint32_t* hashes = nullptr;      // DT_HASH
  const uint16_t* versions = nullptr;    // DT_VERSYM
  const ElfW(Rela) * relocations[2]{};   // of data and of the procedure linkage table
  size_t counts[2]{};
  size_t relative = 0;  // how many entries at the beginning of relocations[0] name no symbol
};

ObjectTables ReadTables(ElfW(Addr) base, const ElfW(Dyn) * dynamic);
// All tables are empty if the object has no dynamic section.
ObjectTables ReadTables(const dl_phdr_info& object);

// The symbol that the object itself defines under this name, in its default version. nullptr: none.
ElfW(Sym) * FindDefinition(const ObjectTables& tables, const char* name);

// The end of `symbols`, as an index. The first entry is empty.
size_t CountSymbols(const ObjectTables& tables);

// Whether the object is this library, or the program that it is linked into.
bool IsThisLibrary(const dl_phdr_info& object);

// FindFirst returns the address of the first definition of a name, like dlsym(RTLD_DEFAULT); FindNext, the address of
// the first definition behind this library, like dlsym(RTLD_NEXT). nullptr: there is none. Unlike dlsym, both also
// search objects that were opened with RTLD_LOCAL, after all others.
void* FindFirst(const char* name);
void* FindNext(const char* name);

// The object that has an address in one of its segments.
struct LoadedObject {
  // Its file, as the dynamic linker names it: "" is the program, which may have a name too. nullptr: no object has the
  // address.
  const char* name = nullptr;
  uintptr_t base = 0;  // what its addresses are relative to: 0 in a program that is not relocatable
};
LoadedObject FindObject(const void* address);

// Whether one object has both addresses.
bool IsSameObject(const void* one, const void* other);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_OBJECTS_H_
