/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host that begins with its first block, over libc's blocks. It dies of what comes before: free, even of NULL, and
 * its operators. It notes a thread at its first operator new, for which it allocates by calloc as programs do. The
 * forms that it does not have are those of the C++ library, which end in these.
 */
#include <stddef.h>
#include <stdlib.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static int has_begun;
static __thread int is_noted;

static void Begun(void) {
  if (!has_begun) abort();
}

/* libc's, which the guest does not define. */
static void Release(void* pointer) { __libc_realloc(pointer, 0); }

void* malloc(size_t size) {
  has_begun = 1;
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  has_begun = 1;
  return __libc_calloc(count, size);
}

void* realloc(void* pointer, size_t size) {
  has_begun = 1;
  return __libc_realloc(pointer, size);
}

void* memalign(size_t alignment, size_t size) {
  has_begun = 1;
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

void free(void* pointer) {
  Begun();
  if (pointer != NULL) Release(pointer);
}

void* New(size_t size) __asm__("_Znwm");
void* New(size_t size) {
  Begun();
  if (!is_noted) {
    is_noted = 1;
    free(calloc(1, 32));
  }
  return __libc_malloc(size);
}

void* NewArray(size_t size) __asm__("_Znam");
void* NewArray(size_t size) { return New(size); }

void Delete(void* pointer) __asm__("_ZdlPv");
void Delete(void* pointer) { free(pointer); }

void DeleteArray(void* pointer) __asm__("_ZdaPv");
void DeleteArray(void* pointer) { free(pointer); }
