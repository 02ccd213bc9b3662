// SPDX-License-Identifier: Apache-2.0
//
// Only in the shared libraries: names that a linker otherwise takes from the C library of the build machine, and the
// functions of that C library that compilers call. The shared libraries are linked without it (libc.h).
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

extern "C" {

// Otherwise defined in crtbeginS.o.
extern void* __dso_handle __attribute__((visibility("hidden")));
void* __dso_handle = &__dso_handle;

// With _FORTIFY_SOURCE, some compilers turn calls whose target has a known size into calls of these functions. musl
// does not have them; glibc's print a line before they abort.
#define HEAPTAP_HIDDEN __attribute__((visibility("hidden")))

HEAPTAP_HIDDEN void* __memcpy_chk(void* target, const void* source, size_t size, size_t room) {
  if (size > room) abort();
  return memcpy(target, source, size);
}

HEAPTAP_HIDDEN void* __memmove_chk(void* target, const void* source, size_t size, size_t room) {
  if (size > room) abort();
  return memmove(target, source, size);
}

HEAPTAP_HIDDEN void* __memset_chk(void* target, int byte, size_t size, size_t room) {
  if (size > room) abort();
  return memset(target, byte, size);
}

HEAPTAP_HIDDEN char* __strcpy_chk(char* target, const char* source, size_t room) {
  const size_t size = strlen(source) + 1;
  if (size > room) abort();
  return static_cast<char*>(memcpy(target, source, size));
}

HEAPTAP_HIDDEN char* __strncpy_chk(char* target, const char* source, size_t size, size_t room) {
  if (size > room) abort();
  return strncpy(target, source, size);
}
}
