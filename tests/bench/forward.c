/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a library before an allocator can do: each call goes on to the next definition. For comparisons. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

static void* (*next_malloc)(size_t);
static void (*next_free)(void*);

EXPORT void* malloc(size_t size) {
  if (next_malloc == NULL) next_malloc = (void* (*)(size_t))dlsym(RTLD_NEXT, "malloc");
  return next_malloc(size);
}

EXPORT void free(void* pointer) {
  if (next_free == NULL) next_free = (void (*)(void*))dlsym(RTLD_NEXT, "free");
  next_free(pointer);
}
