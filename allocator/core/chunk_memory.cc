// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/chunk_memory.h"

#include <stddef.h>

#include "allocator/core/slab.h"
#include "allocator/platform/system.h"

namespace heaptap {

void* MapChunkMemory(size_t size) { return MapAligned(size, kChunkSize); }

}  // namespace heaptap
