/* SPDX-License-Identifier: Apache-2.0 */
/* For LD_AUDIT: allocates, in its own namespace, while the program is being loaded. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>

unsigned la_version(unsigned version) { return version; }

unsigned la_objopen(struct link_map* map, Lmid_t space, uintptr_t* cookie) {
  (void)map, (void)space, (void)cookie;
  void* volatile block = malloc(1000);
  free(block);
  return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

uintptr_t la_symbind64(Elf64_Sym* symbol, unsigned number, uintptr_t* from, uintptr_t* to, unsigned* flags,
                       const char* name) {
  (void)number, (void)from, (void)to, (void)flags, (void)name;
  return symbol->st_value;
}
