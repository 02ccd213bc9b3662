// SPDX-License-Identifier: Apache-2.0
//
// libc's names for the allocator's functions. The Makefile compiles this file and symbols_new.cc without a frame for
// the fast paths and with tail calls, so that malloc and free are their fast paths and nothing else.
#include <errno.h>

#include "allocate.h"

#define HEAPTAP_EXPORT extern "C" __attribute__((visibility("default")))

using heaptap::kPageSize;

namespace {

bool IsPowerOfTwo(size_t number) { return number != 0 && (number & (number - 1)) == 0; }

}  // namespace

HEAPTAP_EXPORT void* malloc(size_t size) { return heaptap::Allocate(size); }

HEAPTAP_EXPORT void free(void* pointer) { heaptap::Free(pointer); }

HEAPTAP_EXPORT void* calloc(size_t count, size_t size) { return heaptap::AllocateZeroed(count, size); }

HEAPTAP_EXPORT void* realloc(void* pointer, size_t size) { return heaptap::Reallocate(pointer, size); }

HEAPTAP_EXPORT void* reallocarray(void* pointer, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return heaptap::Reallocate(pointer, bytes);
}

// Alignments that are no power of two are rounded up, as glibc does.
HEAPTAP_EXPORT void* memalign(size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment)) {
    if (alignment > SIZE_MAX / 2 + 1) {
      errno = EINVAL;
      return nullptr;
    }
    size_t rounded = 1;
    while (rounded < alignment) rounded *= 2;
    alignment = rounded;
  }
  return heaptap::AllocateAligned(alignment, size);
}

HEAPTAP_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return heaptap::AllocateAligned(alignment, size);
}

HEAPTAP_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  int saved = errno;
  void* pointer = heaptap::AllocateAligned(alignment, size);
  errno = saved;
  if (pointer == nullptr) return ENOMEM;
  *result = pointer;
  return 0;
}

HEAPTAP_EXPORT void* valloc(size_t size) { return heaptap::AllocateAligned(kPageSize, size); }

HEAPTAP_EXPORT void* pvalloc(size_t size) {
  if (size > PTRDIFF_MAX - kPageSize) {
    errno = ENOMEM;
    return nullptr;
  }
  return heaptap::AllocateAligned(kPageSize, (size + kPageSize - 1) & ~(kPageSize - 1));
}

HEAPTAP_EXPORT size_t malloc_usable_size(void* pointer) { return heaptap::UsableSize(pointer); }

// A size that does not fit the block would be the caller's error; the block knows better.
HEAPTAP_EXPORT void free_sized(void* pointer, size_t) { heaptap::Free(pointer); }
HEAPTAP_EXPORT void free_aligned_sized(void* pointer, size_t, size_t) { heaptap::Free(pointer); }
HEAPTAP_EXPORT void cfree(void* pointer) { heaptap::Free(pointer); }

// Names by which programs reach past an interposed malloc.
#define HEAPTAP_ALIAS(name) __attribute__((alias(#name), copy(name)))
HEAPTAP_EXPORT void* __libc_malloc(size_t size) HEAPTAP_ALIAS(malloc);
HEAPTAP_EXPORT void __libc_free(void* pointer) HEAPTAP_ALIAS(free);
HEAPTAP_EXPORT void* __libc_calloc(size_t count, size_t size) HEAPTAP_ALIAS(calloc);
HEAPTAP_EXPORT void* __libc_realloc(void* pointer, size_t size) HEAPTAP_ALIAS(realloc);
HEAPTAP_EXPORT void* __libc_memalign(size_t alignment, size_t size) HEAPTAP_ALIAS(memalign);
HEAPTAP_EXPORT void* __libc_valloc(size_t size) HEAPTAP_ALIAS(valloc);
HEAPTAP_EXPORT void* __libc_pvalloc(size_t size) HEAPTAP_ALIAS(pvalloc);
HEAPTAP_EXPORT int __posix_memalign(void** result, size_t alignment, size_t size) HEAPTAP_ALIAS(posix_memalign);
