// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/chunk_memory.h"

#include <stddef.h>

#include "allocator/core/slab.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"

namespace heaptap {

void* MapChunkMemory(size_t size) {
  HEAPTAP_ASSERT(size <= kChunkSize && size % kPageSize == 0 && Mutex::Holds(LockRank::kUnits));
  return MapAligned(size, kChunkSize);
}

}  // namespace heaptap
