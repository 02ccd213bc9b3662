// SPDX-License-Identifier: Apache-2.0
//
// jemalloc's functions: the extended allocation functions, mallctl and its variants, and malloc_stats_print.
//
// The thread cache in flags is ignored: each heap keeps blocks ready. As in jemalloc, a size above all classes, or an
// arena that does not exist, returns nullptr and leaves errno alone; out of memory returns nullptr with ENOMEM.
#include <stddef.h>

#include "allocator/api/symbols.h"
#include "allocator/core/allocate.h"
#include "allocator/core/arena.h"
#include "allocator/core/options.h"
#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/jemalloc/stats/print.h"
#include "heaptap/heaptap.h"

namespace {

using heaptap::BlockTraits;
using heaptap::CheckXmalloc;

constexpr int kAlignmentMask = MALLOCX_ZERO - 1;  // the bits of lg(alignment)

// The bits from this one on hold the index of the arena plus 1; 0: no arena.
constexpr int kArenaShift = 20;
static_assert(MALLOCX_ARENA(0) == 1 << kArenaShift);

BlockTraits TraitsOf(int flags) { return {size_t{1} << (flags & kAlignmentMask), (flags & MALLOCX_ZERO) != 0}; }

// Like TraitsOf, with the arena. False: the arena does not exist.
bool ReadTraits(int flags, BlockTraits* traits) {
  *traits = TraitsOf(flags);
  const unsigned number = static_cast<unsigned>(flags) >> kArenaShift;
  if (number == 0) return true;
  const heaptap::Arena* arena = heaptap::FindArena(number - 1);
  if (arena == nullptr) return false;
  traits->arena = arena->index;
  return true;
}

// The usable size of such a block. 0: no such block is possible.
size_t UsableSizeOf(size_t size, const BlockTraits& traits) {
  if (traits.alignment > heaptap::kLargestClass || size > heaptap::kLargestClass) return 0;
  return heaptap::RoundUpToAlignedClass(size != 0 ? size : 1, traits.alignment);
}

}  // namespace

HEAPTAP_C_EXPORT void* mallocx(size_t size, int flags) {
  BlockTraits traits;
  bool possible = ReadTraits(flags, &traits) && UsableSizeOf(size, traits) != 0;
  return CheckXmalloc(possible ? heaptap::AllocateExtended(size, traits) : nullptr, heaptap::kErrorInMallocx);
}

// Size 0 does not free the block, unlike in realloc.
HEAPTAP_C_EXPORT void* rallocx(void* pointer, size_t size, int flags) {
  BlockTraits traits;
  bool possible = ReadTraits(flags, &traits) && UsableSizeOf(size, traits) != 0;
  return CheckXmalloc(possible ? heaptap::Reallocate(pointer, size != 0 ? size : 1, traits) : nullptr,
                      heaptap::kErrorInRallocx);
}

HEAPTAP_C_EXPORT size_t xallocx(void* pointer, size_t size, size_t extra, int flags) {
  return heaptap::ResizeInPlace(pointer, size, extra, TraitsOf(flags));
}

HEAPTAP_C_EXPORT size_t sallocx(const void* pointer, int) { return heaptap::UsableSize(const_cast<void*>(pointer)); }

HEAPTAP_C_EXPORT void dallocx(void* pointer, int) { heaptap::Free(pointer); }

// The size is ignored: the block's own size is authoritative.
HEAPTAP_C_EXPORT void sdallocx(void* pointer, size_t, int) { heaptap::Free(pointer); }

HEAPTAP_C_EXPORT size_t nallocx(size_t size, int flags) { return UsableSizeOf(size, TraitsOf(flags)); }

HEAPTAP_C_EXPORT int mallctl(const char* name, void* old_value, size_t* old_length, void* new_value,
                             size_t new_length) {
  return heaptap::Mallctl(name, old_value, old_length, new_value, new_length);
}

HEAPTAP_C_EXPORT int mallctlnametomib(const char* name, size_t* mib, size_t* mib_length) {
  return heaptap::MallctlNameToMib(name, mib, mib_length);
}

HEAPTAP_C_EXPORT int mallctlbymib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length,
                                  void* new_value, size_t new_length) {
  return heaptap::MallctlByMib(mib, mib_length, old_value, old_length, new_value, new_length);
}

HEAPTAP_C_EXPORT void malloc_stats_print(void (*write)(void*, const char*), void* opaque, const char* options) {
  heaptap::PrintStatistics(write, opaque, options);
}
