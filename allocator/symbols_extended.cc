// SPDX-License-Identifier: Apache-2.0
//
// jemalloc's extended functions. Their flags may name a thread cache and an arena, which have no meaning here: there is
// one arena, and each thread has its heap. As in jemalloc a size that no class holds is nullptr with errno as it was,
// while memory that has run out is nullptr with ENOMEM.
#include <stddef.h>

#include "allocate.h"
#include "heaptap/heaptap.h"
#include "symbols.h"
#include "xmalloc.h"

namespace {

using heaptap::Demand;
using heaptap::OrAbort;

constexpr int kAlignmentMask = MALLOCX_ZERO - 1;  // the logarithm of the alignment

Demand DemandOf(int flags) { return {size_t{1} << (flags & kAlignmentMask), (flags & MALLOCX_ZERO) != 0}; }

// The usable size of such a block; 0 if there can be none.
size_t UsableSizeOf(size_t size, const Demand& demand) {
  if (demand.alignment > heaptap::kLargestClass || size > heaptap::kLargestClass) return 0;
  return heaptap::RoundUpToAlignedClass(size != 0 ? size : 1, demand.alignment);
}

}  // namespace

HEAPTAP_C_EXPORT void* mallocx(size_t size, int flags) {
  Demand demand = DemandOf(flags);
  bool possible = UsableSizeOf(size, demand) != 0;
  return OrAbort(possible ? heaptap::AllocateExtended(size, demand) : nullptr, heaptap::kErrorInMallocx);
}

// A size of 0 frees nothing here, unlike realloc's.
HEAPTAP_C_EXPORT void* rallocx(void* pointer, size_t size, int flags) {
  Demand demand = DemandOf(flags);
  bool possible = UsableSizeOf(size, demand) != 0;
  return OrAbort(possible ? heaptap::Reallocate(pointer, size != 0 ? size : 1, demand) : nullptr,
                 heaptap::kErrorInRallocx);
}

HEAPTAP_C_EXPORT size_t xallocx(void* pointer, size_t size, size_t extra, int flags) {
  return heaptap::ResizeInPlace(pointer, size, extra, DemandOf(flags));
}

HEAPTAP_C_EXPORT size_t sallocx(const void* pointer, int) { return heaptap::UsableSize(const_cast<void*>(pointer)); }

HEAPTAP_C_EXPORT void dallocx(void* pointer, int) { heaptap::Free(pointer); }

// A size that does not fit the block would be the caller's error; the block knows better.
HEAPTAP_C_EXPORT void sdallocx(void* pointer, size_t, int) { heaptap::Free(pointer); }

HEAPTAP_C_EXPORT size_t nallocx(size_t size, int flags) { return UsableSizeOf(size, DemandOf(flags)); }
