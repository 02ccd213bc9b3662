// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/chunks.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/check.h"

namespace heaptap {
namespace {

constexpr size_t kWordBits = 64;
constexpr size_t kWords = sizeof(Chunk::free_bits) / sizeof(uint64_t);
constexpr size_t kBits = kWords * kWordBits;

// How many chunks are searched for a place that is aligned by chance. The next search continues with other chunks.
constexpr unsigned kAttempts = 16;

// The first bit at or after `from` that differs from the bits of `skipped`, which is all zeros or all ones.
size_t NextOther(const Chunk* chunk, size_t from, uint64_t skipped) {
  if (from >= kBits) return kBits;
  size_t word = from / kWordBits;
  uint64_t bits = (chunk->free_bits[word] ^ skipped) & (~uint64_t{0} << from % kWordBits);
  while (bits == 0) {
    if (++word == kWords) return kBits;
    bits = chunk->free_bits[word] ^ skipped;
  }
  return word * kWordBits + static_cast<size_t>(__builtin_ctzll(bits));
}

// The first of the consecutive free units that end before `unit`. Unit 0 is never free.
size_t FirstFreeBefore(const Chunk* chunk, size_t unit) {
  size_t word = (unit - 1) / kWordBits;
  uint64_t used = ~chunk->free_bits[word] & (~uint64_t{0} >> (kWordBits - 1 - (unit - 1) % kWordBits));
  while (used == 0) used = ~chunk->free_bits[--word];
  return word * kWordBits + kWordBits - static_cast<size_t>(__builtin_clzll(used));
}

void FlipBits(Chunk* chunk, size_t first, size_t count) {
  for (size_t unit = first; unit < first + count;) {
    size_t end = (unit / kWordBits + 1) * kWordBits;
    if (end > first + count) end = first + count;
    chunk->free_bits[unit / kWordBits] ^= (~uint64_t{0} >> (kWordBits - (end - unit))) << unit % kWordBits;
    unit = end;
  }
}

// The length of the longest row of free units. REQUIRES: it is at most `bound`.
size_t LongestUpTo(const Chunk* chunk, size_t bound) {
  size_t longest = 0;
  for (size_t unit = NextFree(chunk, 1); unit < kBits && longest < bound;) {
    size_t end = NextUsed(chunk, unit);
    if (end - unit > longest) longest = end - unit;
    unit = NextFree(chunk, end);
  }
  return longest;
}

// The first unit of the first fitting place in the chunk. 0: there is none.
size_t FindInChunk(const Chunk* chunk, size_t count, size_t alignment) {
  for (size_t unit = NextFree(chunk, 1); unit < kBits;) {
    size_t end = NextUsed(chunk, unit);
    size_t aligned = RoundUp(unit, alignment);
    if (aligned + count <= end) return aligned;
    unit = NextFree(chunk, end);
  }
  return 0;
}

}  // namespace

size_t NextFree(const Chunk* chunk, size_t unit) { return NextOther(chunk, unit, 0); }

size_t NextUsed(const Chunk* chunk, size_t unit) { return NextOther(chunk, unit, ~uint64_t{0}); }

unsigned Chunks::RoomOf(size_t longest) {
  if (longest < 4) return static_cast<unsigned>(longest);
  unsigned log2 = 63 - static_cast<unsigned>(__builtin_clzll(longest));
  return (log2 - 2) * 4 + static_cast<unsigned>(longest >> (log2 - 2));
}

void Chunks::Enter(unsigned room, Chunk* chunk) {
  if (room == 0) return;
  Chunk*& list = lists_[room];
  if (list == nullptr) {
    chunk->next_of_room = chunk->previous_of_room = chunk;
    used_lists_ |= uint32_t{1} << room;
  } else {
    chunk->next_of_room = list;
    chunk->previous_of_room = list->previous_of_room;
    chunk->previous_of_room->next_of_room = chunk;
    list->previous_of_room = chunk;
  }
  list = chunk;
}

void Chunks::Leave(unsigned room, Chunk* chunk) {
  if (room == 0) return;
  Chunk*& list = lists_[room];
  if (chunk->next_of_room == chunk) {
    list = nullptr;
    used_lists_ &= ~(uint32_t{1} << room);
    return;
  }
  chunk->previous_of_room->next_of_room = chunk->next_of_room;
  chunk->next_of_room->previous_of_room = chunk->previous_of_room;
  if (list == chunk) list = chunk->next_of_room;
}

void Chunks::SetLongest(Chunk* chunk, size_t longest) {
  unsigned old_room = RoomOf(chunk->longest);
  unsigned room = RoomOf(longest);
  chunk->longest = static_cast<uint32_t>(longest);
  if (room == old_room) return;
  Leave(old_room, chunk);
  Enter(room, chunk);
}

void Chunks::Add(Chunk* chunk) {
  HEAPTAP_ASSERT(chunk->units != 0);
  // Release: a thread that reads the list without a lock finds the header of the chunk written.
  (last_ != nullptr ? last_->next : first_).store(chunk, std::memory_order_release);
  last_ = chunk;
  MarkFree(chunk, 1, chunk->units - 1);
}

void Chunks::MarkUsed(Chunk* chunk, size_t first, size_t count) {
  HEAPTAP_ASSERT(first != 0 && AreFree(chunk, first, count));
  size_t in_a_row = NextUsed(chunk, first) - FirstFreeBefore(chunk, first);
  FlipBits(chunk, first, count);
  if (in_a_row == chunk->longest) SetLongest(chunk, LongestUpTo(chunk, in_a_row));
}

void Chunks::MarkFree(Chunk* chunk, size_t first, size_t count) {
  HEAPTAP_ASSERT(first != 0 && first + count <= chunk->units && NextFree(chunk, first) >= first + count);
  FlipBits(chunk, first, count);
  size_t in_a_row = NextUsed(chunk, first) - FirstFreeBefore(chunk, first);
  if (in_a_row > chunk->longest) SetLongest(chunk, in_a_row);
}

// Searches the chunks of one list while attempts are left.
Place Chunks::FindIn(unsigned room, size_t count, size_t alignment, unsigned* attempts) {
  Chunk*& list = lists_[room];
  const Chunk* first = list;
  do {
    size_t unit = FindInChunk(list, count, alignment);
    if (unit != 0) return {list, unit};
    --*attempts;
    list = list->next_of_room;
  } while (list != first && *attempts != 0);
  return {};
}

Place Chunks::Find(size_t count, size_t alignment) {
  unsigned attempts = kAttempts;
  // From this room on, every chunk has a place, whatever the alignment of its free units.
  unsigned sure = RoomOf(count + alignment - 2) + 1;
  unsigned room = RoomOf(count);
  while (room < kRooms) {
    if (attempts == 0 && room < sure) room = sure;
    uint32_t lists = used_lists_ & (~uint32_t{0} << room);
    if (lists == 0) break;
    room = static_cast<unsigned>(__builtin_ctz(lists));
    Place place = FindIn(room, count, alignment, &attempts);
    if (place.chunk != nullptr) return place;
    room++;
  }
  return {};
}

#ifdef HEAPTAP_DEBUG

// Called before anything is read of a chunk that a list leads to.
static void CheckIsChunk(const Chunk* chunk) {
  CheckEqual("a chunk on a list is one: address % kChunkSize == 0", chunk,
             reinterpret_cast<uintptr_t>(chunk) % kChunkSize, 0);
  CheckAtMost("a chunk on a list is one: kFreedHuge < chunk_table", chunk, kFreedHuge + 1, ChunkKind(chunk));
}

void Chunks::Check() const {
  size_t count = 0;
  size_t with_room = 0;
  const Chunk* last = nullptr;
  for (const Chunk* chunk = first(); chunk != nullptr; chunk = chunk->next.load(std::memory_order_relaxed)) {
    CheckIsChunk(chunk);
    // The address space has room for this many chunks, so a longer list leads back into itself.
    CheckAtMost("a chunk is on the list of all once", chunk, ++count, kChunkTableSize);
    with_room += chunk->longest != 0;
    last = chunk;
  }
  CheckEqual("last chunk of the list of all == last_", this, reinterpret_cast<uintptr_t>(last),
             reinterpret_cast<uintptr_t>(last_));
  size_t in_rings = 0;
  for (unsigned room = 0; room < kRooms; room++) {
    const Chunk* const ring = lists_[room];
    CheckEqual("used_lists has the bit of a ring == the ring is not empty", this, used_lists_ >> room & 1,
               ring != nullptr);
    const Chunk* chunk = ring;
    while (chunk != nullptr) {
      CheckIsChunk(chunk);
      CheckEqual("room of a chunk in a ring == room of the ring", chunk, RoomOf(chunk->longest), room);
      CheckAtMost("chunks in rings == chunks with a free unit", chunk, ++in_rings, with_room);
      const Chunk* next = chunk->next_of_room;
      CheckIsChunk(next);
      CheckEqual("next_of_room->previous_of_room == this", next, reinterpret_cast<uintptr_t>(next->previous_of_room),
                 reinterpret_cast<uintptr_t>(chunk));
      chunk = next != ring ? next : nullptr;
    }
  }
  CheckEqual("chunks in rings == chunks with a free unit", this, in_rings, with_room);
}

#endif

}  // namespace heaptap
