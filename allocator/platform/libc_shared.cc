// SPDX-License-Identifier: Apache-2.0
//
// Only in the shared libraries: what a linker takes from the C library of the machine that it links on, and what
// compilers call there. The shared libraries are linked without that (libc.h).
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

extern "C" {

// crtbeginS.o's.
extern void* __dso_handle __attribute__((visibility("hidden")));
void* __dso_handle = &__dso_handle;

// What _FORTIFY_SOURCE makes of calls whose target has a known size, depending on the compiler. glibc's functions,
// which musl does not have, print a line before they abort.
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
