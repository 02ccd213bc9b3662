// SPDX-License-Identifier: Apache-2.0
//
// Arenas, which a program can tell apart, and discard as a whole. Arena 0 always exists, and serves all threads that
// are not bound to another one. The others are explicit: the program makes them, and allocates in them by their index
// or by binding a thread.
//
// Each heap, slab, run and huge block belongs to one arena. Free units belong to none: all arenas share them, and the
// memory of the chunks. An arena has a shared heap, which threads use under a lock (HeapScope): for allocations that
// name the arena, and in arena 0 for threads that cannot have a heap of their own.
//
// Any thread, any time after StartThreads (thread.h). Zero-initialised state is valid: arena 0 alone.
#ifndef HEAPTAP_ALLOCATOR_CORE_ARENA_H_
#define HEAPTAP_ALLOCATOR_CORE_ARENA_H_

#include <stdint.h>

#include <atomic>

#include "allocator/core/heap.h"
#include "allocator/core/size_class.h"
#include "allocator/core/slab.h"
#include "allocator/platform/mutex.h"

namespace heaptap {

// As many as jemalloc's MALLOCX_ARENA can express.
inline constexpr unsigned kMostArenas = 4095;

// Allocations and frees of blocks outside slabs since the arena was made. A block whose size changes is freed and
// allocated.
struct LargeCounts {
  std::atomic<uint64_t> allocations;
  std::atomic<uint64_t> frees;
};

// The slabs of one class that hold blocks which the observer wants. The observer alone uses them.
struct SampledPool {
  Mutex mutex{LockRank::kPool};
  SlabList slabs;        // with free blocks
  uint64_t allocations;  // so far
  uint64_t slabs_made;
};

enum class ArenaState : uint8_t {
  kUsed,
  kDiscarding,  // a thread is discarding its blocks
  kDestroyed,   // its index is free for the next arena
};

struct Arena {
  ArenaIndex index;
  std::atomic<ArenaState> state;
  Arena* next_destroyed;  // under the lock of heaps
  Mutex mutex{LockRank::kArena};
  Heap heap;  // the shared one, under `mutex`
  // By ClassNumber. Small sizes with an alignment that no slab provides count here too.
  LargeCounts large[kClasses];
  SampledPool pools[kSmallClasses];
};

extern constinit Arena main_arena;
// Explicit arenas. Entry 0 is not used.
extern std::atomic<Arena*> explicit_arenas[kMostArenas];

// The number of indices that were ever used, including those of destroyed arenas.
unsigned ArenaCount();

// REQUIRES: the arena was made.
inline Arena& ArenaOf(ArenaIndex index) {
  HEAPTAP_ASSERT(index < ArenaCount());
  if (HEAPTAP_LIKELY(index == 0)) return main_arena;
  // Acquire: the arena is complete.
  return *explicit_arenas[index].load(std::memory_order_acquire);
}

// The arena in which the calling thread allocates.
inline Arena& CurrentArena() { return ArenaOf(current_heap->arena); }

// Adds an arena with the next index. REQUIRES: the lock of heaps is held.
void AddArena(Arena* arena);

// Calls `act` for each arena, including destroyed ones.
template <typename Act>
void ForEachArena(Act act) {
  for (unsigned i = 0; i < ArenaCount(); i++) act(ArenaOf(static_cast<ArenaIndex>(i)));
}

// The arena with this index. nullptr: it was never made, or is destroyed.
Arena* FindArena(uint64_t index);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_ARENA_H_
