// SPDX-License-Identifier: Apache-2.0
//
// The chunks of one unit size, and which of their units are free. Chunks are kept in lists by the length of their
// longest row of free units (Chunk::longest), so the time of a search does not depend on the number of chunks.
//
//   room of a chunk   the largest of 1, 2, ... 7, 8, 10, 12, 14, 16, 20, ... up to `longest`; 0 if `longest` is 0
//   list n            a ring of the chunks with room n, the latest arrival in front; n == 0 has no list
//
// Runs have exactly these lengths, because size classes do. So any chunk of list n or a later one has a place for n
// units, and the first of these lists that is not empty is the best fit. An aligned place may need a search.
//
// Not thread safe, except first() and Chunk::next: a chunk is never removed. Zero-initialised state is valid: no chunk.
#ifndef HEAPTAP_ALLOCATOR_CORE_CHUNKS_H_
#define HEAPTAP_ALLOCATOR_CORE_CHUNKS_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/slab.h"

namespace heaptap {

// Consecutive free units of a chunk, from `first` on. `chunk` is nullptr if there is no such place.
struct Place {
  Chunk* chunk;
  size_t first;
};

class Chunks {
 public:
  // The first chunk of all; Chunk::next leads to the others. Acquire: its header is written.
  Chunk* first() const { return first_.load(std::memory_order_acquire); }

  // Adds a chunk and marks all its units but unit 0 free. REQUIRES: Chunk::units is set.
  void Add(Chunk* chunk);

  // A place for `count` units at a multiple of `alignment` units, a power of two. May miss a place that is aligned by
  // chance.
  Place Find(size_t count, size_t alignment);

  // REQUIRES: the units are free.
  void MarkUsed(Chunk* chunk, size_t first, size_t count);
  // REQUIRES: the units are in use.
  void MarkFree(Chunk* chunk, size_t first, size_t count);

  // Debug builds: the equations of the list of all chunks, and of the rings (check.h).
  void Check() const;

 private:
  static constexpr unsigned kRooms = 32;

  static unsigned RoomOf(size_t longest);  // the number of the room's list
  void Enter(unsigned room, Chunk* chunk);
  void Leave(unsigned room, Chunk* chunk);
  void SetLongest(Chunk* chunk, size_t longest);
  Place FindIn(unsigned room, size_t count, size_t alignment, unsigned* attempts);

  std::atomic<Chunk*> first_{};
  Chunk* last_ = nullptr;
  Chunk* lists_[kRooms] = {};
  uint32_t used_lists_ = 0;  // a bit for each list that is not empty
};

// The first free unit (NextFree) or used unit (NextUsed) at or after `unit`. If there is none: the number of bits.
size_t NextFree(const Chunk* chunk, size_t unit);
size_t NextUsed(const Chunk* chunk, size_t unit);

// Whether all of these units exist and are free.
inline bool AreFree(const Chunk* chunk, size_t first, size_t count) { return NextUsed(chunk, first) >= first + count; }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_CHUNKS_H_
