// SPDX-License-Identifier: Apache-2.0
//
// glibc's allocation and introspection functions, except malloc and free (malloc_fast.cc).
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocator/api/symbols.h"
#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/options.h"
#include "allocator/platform/system.h"

using heaptap::CheckXmalloc;
using heaptap::IsPowerOfTwo;
using heaptap::kPageSize;
using heaptap::ReadFigure;

namespace {

void* CheckedAllocateAligned(size_t alignment, size_t size) {
  return CheckXmalloc(heaptap::AllocateAligned(alignment, size), heaptap::kErrorInAligned);
}

void* CheckedReallocate(void* pointer, size_t size) {
  void* result = heaptap::Reallocate(pointer, size);
  bool freed = pointer != nullptr && size == 0;
  return freed ? result : CheckXmalloc(result, heaptap::kErrorInRealloc);
}

}  // namespace

HEAPTAP_C_EXPORT void* calloc(size_t count, size_t size) {
  return CheckXmalloc(heaptap::AllocateZeroed(count, size), heaptap::kErrorInCalloc);
}

HEAPTAP_C_EXPORT void* realloc(void* pointer, size_t size) { return CheckedReallocate(pointer, size); }

HEAPTAP_C_EXPORT void* reallocarray(void* pointer, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    errno = ENOMEM;
    return CheckXmalloc(nullptr, heaptap::kErrorInRealloc);
  }
  // Not CheckedReallocate: a program with a malloc of its own may have no reallocarray, and its realloc knows the
  // block.
  return realloc(pointer, bytes);
}

// An alignment that is not a power of two is rounded up, as in glibc.
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
  return CheckedAllocateAligned(alignment, size);
}

HEAPTAP_C_EXPORT void* aligned_alloc(size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return CheckedAllocateAligned(alignment, size);
}

HEAPTAP_C_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  if (!IsPowerOfTwo(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  int saved = errno;
  void* pointer = CheckedAllocateAligned(alignment, size);
  errno = saved;
  if (pointer == nullptr) return ENOMEM;
  *result = pointer;
  return 0;
}

HEAPTAP_C_EXPORT void* valloc(size_t size) { return CheckedAllocateAligned(kPageSize, size); }

HEAPTAP_C_EXPORT void* pvalloc(size_t size) {
  if (size > PTRDIFF_MAX - kPageSize) {
    errno = ENOMEM;
    return CheckXmalloc(nullptr, heaptap::kErrorInAligned);
  }
  return CheckedAllocateAligned(kPageSize, heaptap::RoundUp(size, kPageSize));
}

HEAPTAP_C_EXPORT size_t malloc_usable_size(void* pointer) { return heaptap::UsableSize(pointer); }

// The size is ignored: the block's own size is authoritative.
HEAPTAP_C_EXPORT void free_sized(void* pointer, size_t) { heaptap::Free(pointer); }
HEAPTAP_C_EXPORT void free_aligned_sized(void* pointer, size_t, size_t) { heaptap::Free(pointer); }
HEAPTAP_C_EXPORT void cfree(void* pointer) { heaptap::Free(pointer); }

// Programs use these names to bypass an interposed malloc.
HEAPTAP_C_EXPORT void* __libc_calloc(size_t count, size_t size) HEAPTAP_ALIAS(calloc);
HEAPTAP_C_EXPORT void* __libc_realloc(void* pointer, size_t size) HEAPTAP_ALIAS(realloc);
HEAPTAP_C_EXPORT void* __libc_memalign(size_t alignment, size_t size) HEAPTAP_ALIAS(memalign);
HEAPTAP_C_EXPORT void* __libc_valloc(size_t size) HEAPTAP_ALIAS(valloc);
HEAPTAP_C_EXPORT void* __libc_pvalloc(size_t size) HEAPTAP_ALIAS(pvalloc);
HEAPTAP_C_EXPORT int __posix_memalign(void** result, size_t alignment, size_t size) HEAPTAP_ALIAS(posix_memalign);

// --- introspection, from the figures of the control block ---

namespace {

struct Totals {
  uint64_t mapped = ReadFigure(&heaptap_statistics::mapped);
  uint64_t active = ReadFigure(&heaptap_statistics::active);
  uint64_t dirty = ReadFigure(&heaptap_statistics::dirty);
  uint64_t large = ReadFigure(&heaptap_statistics::large);
};

int Clip(uint64_t number) { return number < INT_MAX ? static_cast<int>(number) : INT_MAX; }

}  // namespace

HEAPTAP_C_EXPORT int malloc_trim(size_t) noexcept { return heaptap::Trim(); }

// There is nothing to tune. Reports success, since programs that set glibc's parameters might take an error seriously.
HEAPTAP_C_EXPORT int mallopt(int, int) noexcept { return 1; }

HEAPTAP_C_EXPORT struct mallinfo2 mallinfo2() noexcept {
  Totals totals;
  struct mallinfo2 result {};
  result.arena = totals.mapped;
  result.hblkhd = totals.large;
  result.uordblks = totals.active;
  // The two figures are not read at the same moment.
  result.fordblks = totals.mapped > totals.active ? totals.mapped - totals.active : 0;
  result.keepcost = totals.dirty;
  return result;
}

HEAPTAP_C_EXPORT struct mallinfo mallinfo() noexcept {
  struct mallinfo2 wide = mallinfo2();
  struct mallinfo result {};
  result.arena = Clip(wide.arena);
  result.hblkhd = Clip(wide.hblkhd);
  result.uordblks = Clip(wide.uordblks);
  result.fordblks = Clip(wide.fordblks);
  result.keepcost = Clip(wide.keepcost);
  return result;
}

HEAPTAP_C_EXPORT void malloc_stats() noexcept {
  Totals totals;
  heaptap::Message message;
  message << "heaptap: " << totals.mapped << " bytes mapped, " << totals.active << " in use, " << totals.dirty
          << " free but not returned to the system, " << totals.large << " in large blocks\n";
  message.Print();
}

HEAPTAP_C_EXPORT int malloc_info(int options, FILE* stream) noexcept {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  Totals totals;
  heaptap::Message text;
  text << "<malloc version=\"heaptap-1\">\n"
       << "<system type=\"mapped\" size=\"" << totals.mapped << "\"/>\n"
       << "<system type=\"active\" size=\"" << totals.active << "\"/>\n"
       << "<system type=\"dirty\" size=\"" << totals.dirty << "\"/>\n"
       << "<total type=\"large\" size=\"" << totals.large << "\"/>\n"
       << "</malloc>\n";
  return fputs(text.text(), stream) < 0 ? -1 : 0;
}
