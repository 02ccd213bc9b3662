// SPDX-License-Identifier: Apache-2.0
//
// Where the memory of chunks comes from. chunk_memory.cc takes it from anywhere in the address space; a library that
// must know its chunks by their addresses defines the function itself (guest/range.cc).
#ifndef HEAPTAP_ALLOCATOR_CORE_CHUNK_MEMORY_H_
#define HEAPTAP_ALLOCATOR_CORE_CHUNK_MEMORY_H_

#include <stddef.h>

namespace heaptap {

// Zeroed, writable memory at a multiple of kChunkSize. nullptr: out of memory. Never given back. Called under the lock
// of units. REQUIRES: `size` is at most kChunkSize and a multiple of the page size.
void* MapChunkMemory(size_t size);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_CHUNK_MEMORY_H_
