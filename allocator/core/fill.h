// SPDX-License-Identifier: Apache-2.0
//
// What new memory contains: zeros where they must be, and what the options ask for. For the thread that allocates.
#ifndef HEAPTAP_ALLOCATOR_CORE_FILL_H_
#define HEAPTAP_ALLOCATOR_CORE_FILL_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/core/large.h"
#include "allocator/core/options.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"

namespace heaptap {

// How many bytes at the beginning of a newly allocated block may be other than zero; all later bytes read as zero.
inline size_t UnknownBytes(void* pointer) {
  unsigned kind = ChunkKind(pointer);
  bool junk = core_options.fill_on_allocation == FillOnAllocation::kJunk;
  if (kind == kHuge) return junk ? SIZE_MAX : HugeOf(pointer)->written;
  Slab* slab = SlabOf(pointer, kind);
  uintptr_t owner = slab->owner.load(std::memory_order_relaxed);
  bool reads_as_zero =
      owner == reinterpret_cast<uintptr_t>(current_heap) ? slab->fresh : owner == kRunOwner && slab->fresh && !junk;
  return reads_as_zero ? 0 : SIZE_MAX;
}

// Makes a part of a newly allocated block read as zero, from `kept` to `end`.
inline void ClearAfter(void* pointer, size_t kept, size_t end) {
  size_t unknown = UnknownBytes(pointer);
  if (unknown < end) end = unknown;
  if (kept < end) memset(static_cast<char*>(pointer) + kept, 0, end - kept);
}

// Makes a newly allocated block read as zero.
inline void Clear(void* pointer, size_t bytes) { ClearAfter(pointer, 0, bytes); }

// Fills a newly allocated block of this usable size as the options ask.
void Fill(void* pointer, size_t usable);
// Calls Fill if the options ask for filling.
inline void FillNew(void* pointer, size_t usable) {
  if (HEAPTAP_UNLIKELY(core_options.fill_on_allocation != FillOnAllocation::kNothing)) Fill(pointer, usable);
}

// Fills the part by which a block has grown in place. `is_zero`: this part already reads as zero. `zero`: it must read
// as zero.
void FillGrown(void* pointer, size_t old_usable, size_t usable, bool is_zero, bool zero);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_FILL_H_
