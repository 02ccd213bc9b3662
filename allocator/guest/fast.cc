// SPDX-License-Identifier: Apache-2.0
//
// The fast paths of a guest: malloc, free, and the functions like them. Each is a subtraction or a comparison, and a
// jump to the host.
//
// The Makefile compiles this file without frame pointers and with tail calls, like api/malloc_fast.cc: each function
// either jumps to the host or to a slow path. The host returns to the caller, so it sees and keeps the same stack as
// without the guest.
#include <stddef.h>
#include <stdlib.h>

#include <new>

#include "allocator/api/symbols.h"
#include "allocator/guest/host.h"
#include "allocator/guest/range.h"
#include "allocator/guest/samples.h"
#include "allocator/guest/slow.h"
#include "allocator/guest/thread.h"
#include "heaptap/heaptap.h"

using heaptap::Charge;
using heaptap::host;
using heaptap::IsInRange;
using heaptap::SampleUsableSize;

HEAPTAP_C_EXPORT void* malloc(size_t size) {
  if (Charge(size)) return heaptap::SlowMalloc(size);
  return host.malloc(size);
}

HEAPTAP_C_EXPORT void* tc_malloc(size_t size) {
  if (Charge(size)) return heaptap::SlowTcMalloc(size);
  return host.tc_malloc(size);
}

// If the product overflows, the charge is wrong, and the host refuses the request.
HEAPTAP_C_EXPORT void* calloc(size_t count, size_t size) {
  if (Charge(count * size)) return heaptap::SlowCalloc(count, size);
  return host.calloc(count, size);
}

HEAPTAP_C_EXPORT void* tc_calloc(size_t count, size_t size) {
  if (Charge(count * size)) return heaptap::SlowTcCalloc(count, size);
  return host.tc_calloc(count, size);
}

HEAPTAP_C_EXPORT void* realloc(void* pointer, size_t size) {
  if (HEAPTAP_UNLIKELY(IsInRange(pointer))) return heaptap::ReallocSample(pointer, size);
  if (Charge(size)) return heaptap::SlowRealloc(pointer, size);
  return host.realloc(pointer, size);
}

HEAPTAP_C_EXPORT void* tc_realloc(void* pointer, size_t size) {
  if (HEAPTAP_UNLIKELY(IsInRange(pointer))) return heaptap::ReallocSample(pointer, size);
  if (Charge(size)) return heaptap::SlowRealloc(pointer, size);
  return host.tc_realloc(pointer, size);
}

// The low bits of flags are the logarithm of the alignment.
HEAPTAP_C_EXPORT void* mallocx(size_t size, int flags) {
  const size_t alignment = size_t{1} << (flags & (MALLOCX_ZERO - 1));
  if (Charge(heaptap::ChargedSize(size, alignment))) return heaptap::SlowMallocx(size, flags);
  return host.mallocx(size, flags);
}

// Defines a function that frees `pointer`. The size or the flags that the function gets belong to the block that the
// program thinks it has; a sample knows its own size. The static_assert takes the semicolon.
#define HEAPTAP_FREE(declaration, entry, arguments)                                \
  declaration {                                                                    \
    if (HEAPTAP_UNLIKELY(IsInRange(pointer))) return heaptap::FreeSample(pointer); \
    return host.entry arguments;                                                   \
  }                                                                                \
  static_assert(true)
#define HEAPTAP_FREE_OF_HOST(result, entry, name, parameters, arguments) \
  HEAPTAP_FREE(HEAPTAP_C_EXPORT result entry parameters, entry, arguments);

HEAPTAP_HOST_FREE_FUNCTIONS(HEAPTAP_FREE_OF_HOST)
HEAPTAP_FREE(HEAPTAP_C_EXPORT void free(void* pointer), free, (pointer));
HEAPTAP_FREE(HEAPTAP_C_EXPORT void __libc_free(void* pointer), libc_free, (pointer));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete(void* pointer) noexcept, delete_plain, (pointer));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete[](void* pointer) noexcept, delete_array, (pointer));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete(void* pointer, size_t size) noexcept, delete_sized, (pointer, size));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete[](void* pointer, size_t size) noexcept, delete_array_sized,
             (pointer, size));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete(void* pointer, const std::nothrow_t& nothrow) noexcept, delete_nothrow,
             (pointer, nothrow));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete[](void* pointer, const std::nothrow_t& nothrow) noexcept,
             delete_array_nothrow, (pointer, nothrow));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete(void* pointer, std::align_val_t alignment) noexcept, delete_aligned,
             (pointer, alignment));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete[](void* pointer, std::align_val_t alignment) noexcept,
             delete_array_aligned, (pointer, alignment));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete(void* pointer, std::align_val_t alignment,
                                                 const std::nothrow_t& nothrow) noexcept,
             delete_aligned_nothrow, (pointer, alignment, nothrow));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete[](void* pointer, std::align_val_t alignment,
                                                   const std::nothrow_t& nothrow) noexcept,
             delete_array_aligned_nothrow, (pointer, alignment, nothrow));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete(void* pointer, size_t size, std::align_val_t alignment) noexcept,
             delete_sized_aligned, (pointer, size, alignment));
HEAPTAP_FREE(HEAPTAP_EXPORT void operator delete[](void* pointer, size_t size, std::align_val_t alignment) noexcept,
             delete_array_sized_aligned, (pointer, size, alignment));

#define HEAPTAP_SIZE_OF_HOST(result, entry, name, parameters, arguments)        \
  HEAPTAP_C_EXPORT result entry parameters {                                    \
    if (HEAPTAP_UNLIKELY(IsInRange(pointer))) return SampleUsableSize(pointer); \
    return host.entry arguments;                                                \
  }

HEAPTAP_HOST_SIZE_FUNCTIONS(HEAPTAP_SIZE_OF_HOST)
HEAPTAP_SIZE_OF_HOST(size_t, malloc_usable_size, "malloc_usable_size", (void* pointer), (pointer))

// A sample keeps its size, as a block in a slab of jemalloc does.
HEAPTAP_C_EXPORT size_t xallocx(void* pointer, size_t size, size_t extra, int flags) {
  if (HEAPTAP_UNLIKELY(IsInRange(pointer))) return SampleUsableSize(pointer);
  return host.xallocx(pointer, size, extra, flags);
}
