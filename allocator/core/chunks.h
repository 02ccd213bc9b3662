// SPDX-License-Identifier: Apache-2.0
//
// The chunks of one unit size, and which of their units are free. A place for units is found by the most free units
// that a chunk has in a row (Chunk::longest), so the search does not depend on how many chunks there are.
//
//   room of a chunk   the largest of 1, 2, ... 7, 8, 10, 12, 14, 16, 20, ... up to `longest`; 0 if that is 0
//   list n            a ring of the chunks with room n, the one that came last in front; n == 0 has no list
//
// Runs have just these lengths, since size classes do. So any chunk of list n or a later one has a place for n units,
// and the first of these lists that is not empty is the best fit. With an alignment the place may have to be searched.
//
// Not thread safe, but for first() and Chunk::next: a chunk stays for ever. It begins with no chunk.
#ifndef HEAPTAP_ALLOCATOR_CORE_CHUNKS_H_
#define HEAPTAP_ALLOCATOR_CORE_CHUNKS_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/slab.h"

namespace heaptap {

// `count` free units from `first` on, in a chunk; nullptr: there is no such place.
struct Place {
  Chunk* chunk;
  size_t first;
};

class Chunks {
 public:
  Chunk* first() const { return first_.load(std::memory_order_acquire); }

  // A new chunk, with `units` set: all but unit 0 become free.
  void Add(Chunk* chunk);

  // A place at a multiple of `alignment` units, a power of two. May fail to find one that is aligned by chance.
  Place Find(size_t count, size_t alignment);

  // REQUIRES: the units are free.
  void MarkUsed(Chunk* chunk, size_t first, size_t count);
  // REQUIRES: the units are in use.
  void MarkFree(Chunk* chunk, size_t first, size_t count);

 private:
  static constexpr unsigned kRooms = 32;

  static unsigned RoomOf(size_t longest);  // its number
  void Enter(unsigned room, Chunk* chunk);
  void Leave(unsigned room, Chunk* chunk);
  void SetLongest(Chunk* chunk, size_t longest);
  Place FindIn(unsigned room, size_t count, size_t alignment, unsigned* attempts);

  std::atomic<Chunk*> first_{};
  Chunk* last_ = nullptr;
  Chunk* lists_[kRooms] = {};
  uint32_t used_lists_ = 0;  // a bit for each list that is not empty
};

// The first free unit from `unit` on, or the first in use; the number of bits if there is none.
size_t NextFree(const Chunk* chunk, size_t unit);
size_t NextUsed(const Chunk* chunk, size_t unit);

// Whether all of these units exist and are free.
inline bool AreFree(const Chunk* chunk, size_t first, size_t count) { return NextUsed(chunk, first) >= first + count; }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_CHUNKS_H_
