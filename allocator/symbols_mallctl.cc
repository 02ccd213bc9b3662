// SPDX-License-Identifier: Apache-2.0
//
// mallctl and its relatives, jemalloc's.
#include "mallctl.h"
#include "symbols.h"

HEAPTAP_C_EXPORT int mallctl(const char* name, void* old_value, size_t* old_length, void* new_value,
                             size_t new_length) {
  return heaptap::Mallctl(name, old_value, old_length, new_value, new_length);
}

HEAPTAP_C_EXPORT int mallctlnametomib(const char* name, size_t* mib, size_t* mib_length) {
  return heaptap::MallctlNameToMib(name, mib, mib_length);
}

HEAPTAP_C_EXPORT int mallctlbymib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length,
                                  void* new_value, size_t new_length) {
  return heaptap::MallctlByMib(mib, mib_length, old_value, old_length, new_value, new_length);
}
