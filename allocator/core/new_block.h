// SPDX-License-Identifier: Apache-2.0
//
// What malloc and realloc have in common (allocate.cc, reallocate.cc). Any thread may call any of these functions at
// any time.
#ifndef HEAPTAP_ALLOCATOR_CORE_NEW_BLOCK_H_
#define HEAPTAP_ALLOCATOR_CORE_NEW_BLOCK_H_

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/arena.h"
#include "allocator/core/control.h"
#include "allocator/core/observer.h"
#include "allocator/core/size_class.h"
#include "allocator/core/slab.h"

namespace heaptap {

inline void* FailWithEnomem() {
  errno = ENOMEM;
  return nullptr;
}

// Whether blocks of this usable size lie in slabs, and all of them have this alignment.
inline bool FitsSlab(size_t usable, size_t alignment) {
  return usable != 0 && usable <= kSmallMaximum && usable % alignment == 0;
}

// An allocation that the observer wants. nullptr: there is no memory for it. Inlined, because on deep stacks each frame
// of the allocator takes the place of one of the program's frames.
[[gnu::always_inline]] inline void* AllocateObserved(Arena& arena, unsigned size_class, uint64_t weight,
                                                     size_t requested) {
  // Counted before the observer reads the counter.
  thread_counters.allocated += kClassSize[size_class];
  void* pointer = observer::AllocateBlock(arena, size_class, requested, weight);
  if (HEAPTAP_LIKELY(pointer != nullptr)) return pointer;
  thread_counters.allocated -= kClassSize[size_class];
  return nullptr;
}

// Like AllocateAligned, in the arena with this index.
void* AllocateAlignedIn(ArenaIndex index, size_t alignment, size_t size);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_NEW_BLOCK_H_
