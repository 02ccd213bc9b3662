// SPDX-License-Identifier: Apache-2.0
//
// libc's names for the allocator's functions, but for malloc and free themselves (symbols_fast.cc).
#include <errno.h>

#include "allocate.h"
#include "symbols.h"
#include "xmalloc.h"

using heaptap::kPageSize;
using heaptap::OrAbort;

namespace {

bool IsPowerOfTwo(size_t number) { return number != 0 && (number & (number - 1)) == 0; }

void* AllocateAligned(size_t alignment, size_t size) {
  return OrAbort(heaptap::AllocateAligned(alignment, size), heaptap::kErrorInAligned);
}

void* Reallocate(void* pointer, size_t size) {
  void* result = heaptap::Reallocate(pointer, size);
  bool freed = pointer != nullptr && size == 0;
  return freed ? result : OrAbort(result, heaptap::kErrorInRealloc);
}

}  // namespace

HEAPTAP_C_EXPORT void* calloc(size_t count, size_t size) {
  return OrAbort(heaptap::AllocateZeroed(count, size), heaptap::kErrorInCalloc);
}

HEAPTAP_C_EXPORT void* realloc(void* pointer, size_t size) { return Reallocate(pointer, size); }

HEAPTAP_C_EXPORT void* reallocarray(void* pointer, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return OrAbort(nullptr, heaptap::kErrorInRealloc);
  }
  return Reallocate(pointer, bytes);
}

// Alignments that are no power of two are rounded up, as glibc does.
HEAPTAP_C_EXPORT void* memalign(size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment)) {
    if (alignment > SIZE_MAX / 2 + 1) {
      errno = EINVAL;
      return nullptr;
    }
    size_t rounded = 1;
    while (rounded < alignment) rounded *= 2;
    alignment = rounded;
  }
  return AllocateAligned(alignment, size);
}

HEAPTAP_C_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return AllocateAligned(alignment, size);
}

HEAPTAP_C_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  int saved = errno;
  void* pointer = AllocateAligned(alignment, size);
  errno = saved;
  if (pointer == nullptr) return ENOMEM;
  *result = pointer;
  return 0;
}

HEAPTAP_C_EXPORT void* valloc(size_t size) { return AllocateAligned(kPageSize, size); }

HEAPTAP_C_EXPORT void* pvalloc(size_t size) {
  if (size > PTRDIFF_MAX - kPageSize) {
    errno = ENOMEM;
    return OrAbort(nullptr, heaptap::kErrorInAligned);
  }
  return AllocateAligned(kPageSize, (size + kPageSize - 1) & ~(kPageSize - 1));
}

HEAPTAP_C_EXPORT size_t malloc_usable_size(void* pointer) { return heaptap::UsableSize(pointer); }

// A size that does not fit the block would be the caller's error; the block knows better.
HEAPTAP_C_EXPORT void free_sized(void* pointer, size_t) { heaptap::Free(pointer); }
HEAPTAP_C_EXPORT void free_aligned_sized(void* pointer, size_t, size_t) { heaptap::Free(pointer); }
HEAPTAP_C_EXPORT void cfree(void* pointer) { heaptap::Free(pointer); }

// Names by which programs reach past an interposed malloc.
HEAPTAP_C_EXPORT void* __libc_calloc(size_t count, size_t size) HEAPTAP_ALIAS(calloc);
HEAPTAP_C_EXPORT void* __libc_realloc(void* pointer, size_t size) HEAPTAP_ALIAS(realloc);
HEAPTAP_C_EXPORT void* __libc_memalign(size_t alignment, size_t size) HEAPTAP_ALIAS(memalign);
HEAPTAP_C_EXPORT void* __libc_valloc(size_t size) HEAPTAP_ALIAS(valloc);
HEAPTAP_C_EXPORT void* __libc_pvalloc(size_t size) HEAPTAP_ALIAS(pvalloc);
HEAPTAP_C_EXPORT int __posix_memalign(void** result, size_t alignment, size_t size) HEAPTAP_ALIAS(posix_memalign);
