// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/new_chunk.h"

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/chunk_memory.h"
#include "allocator/core/control.h"
#include "allocator/core/huge_pages.h"
#include "allocator/platform/system.h"

namespace heaptap {
namespace {

// The size of the first chunk of each kind. Small processes need no other chunk, so it takes little of a limited
// address space, and no huge pages, which would make these processes larger.
constexpr size_t kFirstChunk = 4 * 1024 * 1024;
// Where mappings are limited, a chunk takes at most one part in this many of the limit.
constexpr uint64_t kLimitShare = 16;
// Once the system has refused a chunk, each chunk takes at most one part in this many of what is left, because the
// program's own mappings need some too.
constexpr size_t kRefusedShare = 16;
// While new memory is locked (mlockall), all of a new chunk is resident.
constexpr size_t kLockedChunk = 1024 * 1024;
// If either is set, the slabs of all classes are short.
constinit bool is_refused;
constinit bool is_locked;

// With mlockall(MCL_FUTURE) the system refuses mappings beyond RLIMIT_MEMLOCK, of which chunk_table takes half at the
// default limit. The part of chunk_table that was never written needs no lock. Neither does the part of a chunk's first
// unit behind the descriptors.
void UnlockTable(const WrittenEntries& written) {
  const auto page_at = [](size_t index) {
    return RoundUp(reinterpret_cast<uintptr_t>(chunk_table + index), kPageSize);
  };
  const auto unlock = [](uintptr_t begin, uintptr_t end) {
    if (begin < end) UnlockPages(reinterpret_cast<void*>(begin), end - begin);
  };
  const bool is_used = written.begin < written.end;
  unlock(page_at(0), is_used ? page_at(written.begin) - kPageSize : page_at(0));
  unlock(page_at(is_used ? written.end : 0), page_at(kChunkTableSize) - kPageSize);
}

struct ChunkMapping {
  void* memory;  // nullptr: out of memory
  size_t size;
};

// Unmaps the end of the mapping, so that at most `size` bytes are left, but at least `needed`.
void Cut(ChunkMapping* mapping, size_t size, size_t needed) {
  if (size < needed) size = needed;
  if (size >= mapping->size) return;
  if (Unmap(static_cast<char*>(mapping->memory) + size, mapping->size - size)) mapping->size = size;
}

bool IsLocked(const ChunkMapping& mapping) {
  return !DiscardPages(static_cast<char*>(mapping.memory) + mapping.size - kPageSize, kPageSize);
}

// `needed`: bytes, a multiple of the unit size. `share`: how many bytes of the limit one chunk may take.
ChunkMapping MapNewChunk(size_t needed, size_t size, uint64_t share, const WrittenEntries& written) {
  while (size > share && size > kFirstChunk) size /= 2;
  if (is_locked) size = kLockedChunk;
  if (size < needed) size = needed;
  ChunkMapping mapping{is_refused ? nullptr : MapChunkMemory(size), size};
  if (mapping.memory == nullptr) {
    is_refused = true;
    UnlockTable(written);
    while (mapping.memory == nullptr && mapping.size > needed) {
      mapping.size = mapping.size / 2 < needed ? needed : mapping.size / 2;
      mapping.memory = MapChunkMemory(mapping.size);
    }
    if (mapping.memory == nullptr) return mapping;
    Cut(&mapping, mapping.size / kRefusedShare, needed);
  }
  if (!is_locked && IsLocked(mapping)) {
    is_locked = true;
    Cut(&mapping, kLockedChunk, needed);
  }
  return mapping;
}

}  // namespace

Chunk* MapChunk(unsigned shift, size_t needed, bool is_first, const WrittenEntries& written) {
  const uint64_t share = MappingLimit() / kLimitShare;
  if (share < kFirstChunk) is_refused = true;
  if (shift == kLongShift && (is_refused || is_locked)) return nullptr;
  const bool is_small = is_first && needed <= kFirstChunk;
  const ChunkMapping mapping = MapNewChunk(needed, is_small ? kFirstChunk : kChunkSize, share, written);
  if (mapping.memory == nullptr) return nullptr;
  AddToFigure(&heaptap_statistics::mapped, static_cast<int64_t>(mapping.size));
  // Before the first write, which may get a huge page.
  AdviseHugePages(mapping.memory, mapping.size, !is_small);
  Chunk* chunk = static_cast<Chunk*>(mapping.memory);
  chunk->shift = shift;
  chunk->units = static_cast<uint32_t>(mapping.size >> shift);
  chunk->huge_pages = !is_small;
  const size_t used = DescriptorBytes(chunk->units);
  if (is_refused) UnlockPages(static_cast<char*>(mapping.memory) + used, (size_t{1} << shift) - used);
  return chunk;
}

}  // namespace heaptap
