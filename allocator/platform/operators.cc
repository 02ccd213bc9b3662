// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/operators.h"

#include <link.h>
#include <stddef.h>
#include <string.h>

#include "allocator/platform/objects.h"

namespace heaptap {
namespace {

constexpr const char* kOperators[] = {
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
};

// What C++ libraries call in their operators.
constexpr const char* kCalled[] = {"malloc", "free", "aligned_alloc", "posix_memalign", "memalign"};

// Only a C++ library defines this function, and every release of it does.
constexpr char kSetNewHandler[] = "_ZSt15set_new_handlerPFvvE";

template <size_t kCount>
bool DefinesAny(const ObjectTables& tables, const char* const (&names)[kCount]) {
  for (const char* name : names) {
    if (FindDefinition(tables, name) != nullptr) return true;
  }
  return false;
}

// The search for the first object, besides this library, that decides.
struct Search {
  const void* next_malloc;  // the first behind this library
  bool is_behind = false;   // this library has been passed
  bool may_take = false;
};

int LookAt(dl_phdr_info* object, size_t, void* opaque) {
  Search& search = *static_cast<Search*>(opaque);
  if (!search.is_behind && IsThisLibrary(*object)) {
    search.is_behind = true;
    return 0;
  }
  const ObjectTables tables = ReadTables(*object);
  // What an object before this library defines is in use instead.
  if (!search.is_behind && DefinesAny(tables, kCalled)) return 1;
  if (!DefinesAny(tables, kOperators)) return 0;
  const bool is_library = FindDefinition(tables, kSetNewHandler) != nullptr;
  // An allocator's operators may call the functions of malloc's family by their names, and so those of another
  // allocator.
  const ElfW(Sym)* own_malloc = FindDefinition(tables, "malloc");
  const bool is_allocator =
      own_malloc != nullptr &&
      reinterpret_cast<const void*>(object->dlpi_addr + own_malloc->st_value) == search.next_malloc;
  search.may_take = search.is_behind && (is_library || is_allocator);
  return 1;
}

}  // namespace

bool IsOperator(const char* name) {
  if (strncmp(name, "_Zn", 3) != 0 && strncmp(name, "_Zd", 3) != 0) return false;
  for (const char* one : kOperators) {
    if (strcmp(name, one) == 0) return true;
  }
  return false;
}

bool MayTakeOperators() {
  Search search{.next_malloc = FindNext("malloc")};
  dl_iterate_phdr(LookAt, &search);
  return search.may_take;
}

}  // namespace heaptap
