/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A part of malloc's family, over memory that is never used twice. What comes from others goes back to libc.
 *
 *   FAMILY=0   malloc, calloc, realloc, free
 *   FAMILY=1   these and malloc_usable_size
 *   FAMILY=2   aligned_alloc, posix_memalign, realloc, free: malloc is libc's
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "counts.h"

extern void __libc_free(void*);
extern void* __libc_realloc(void*, size_t);

static struct counts counted;
static char arena[64 << 20] __attribute__((aligned(4096)));
static size_t used;

static int IsOwn(const void* pointer) {
  return (uintptr_t)pointer >= (uintptr_t)arena && (uintptr_t)pointer < (uintptr_t)arena + sizeof(arena);
}

static size_t SizeOf(const void* pointer) {
  size_t size;
  memcpy(&size, (const char*)pointer - sizeof(size), sizeof(size));
  return size;
}

static void* Take(size_t alignment, size_t size) {
  if (size > sizeof(arena)) return NULL;
  size_t begin = (used + sizeof(size) + alignment - 1) & ~(alignment - 1);
  if (begin + size > sizeof(arena)) return NULL;
  memcpy(arena + begin - sizeof(size), &size, sizeof(size));
  used = begin + size;
  counted.allocated++;
  return arena + begin;
}

void free(void* pointer) {
  if (pointer == NULL) return;
  if (IsOwn(pointer)) {
    counted.freed++;
  } else {
    counted.foreign++;
    __libc_free(pointer);
  }
}

void* realloc(void* pointer, size_t size) {
  if (pointer == NULL) return malloc(size);
  if (!IsOwn(pointer)) return __libc_realloc(pointer, size);
  void* moved = malloc(size);
  if (moved == NULL) return NULL;
  memcpy(moved, pointer, SizeOf(pointer) < size ? SizeOf(pointer) : size);
  free(pointer);
  return moved;
}

#if FAMILY != 2
void* malloc(size_t size) { return Take(16, size); }
/* The arena reads as zero. */
void* calloc(size_t count, size_t size) { return malloc(count * size); }
#else
void* aligned_alloc(size_t alignment, size_t size) { return Take(alignment, size); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  *result = Take(alignment, size);
  return *result != NULL ? 0 : ENOMEM;
}
#endif

#if FAMILY == 1
size_t malloc_usable_size(void* pointer) { return pointer != NULL ? SizeOf(pointer) : 0; }
#endif

struct counts Counts(void) {
  return SinceFirst(counted);
}
