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

// As many as MALLOCX_ARENA of jemalloc's can express.
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
};

enum class ArenaState : uint8_t {
  kUsed,
  kDiscarding,  // a thread discards its blocks
  kDestroyed,   // its index is free for the next one
};

struct Arena {
  ArenaIndex index;
  std::atomic<ArenaState> state;
  Arena* next_destroyed;  // under the lock of heaps
  Mutex mutex{LockRank::kArena};
  Heap heap;  // the shared one, under `mutex`
  // By ClassNumber. Small sizes with an alignment that no slab provides count here too.
  LargeCounts large[kClasses];
  std::atomic<uint64_t> slabs_made[kSmallClasses];
  SampledPool pools[kSmallClasses];
};

extern constinit Arena main_arena;
// Explicit arenas. Entry 0 is not used.
extern std::atomic<Arena*> explicit_arenas[kMostArenas];

// REQUIRES: the arena was made.
inline Arena& ArenaOf(ArenaIndex index) {
  if (HEAPTAP_LIKELY(index == 0)) return main_arena;
  // Acquire: the arena is complete.
  return *explicit_arenas[index].load(std::memory_order_acquire);
}

// The arena in which the calling thread allocates.
inline Arena& CurrentArena() { return ArenaOf(current_heap->arena); }

// The number of indices that were ever used; those of destroyed arenas count.
unsigned ArenaCount();

// Calls `act` for each arena, those included that are destroyed.
template <typename Act>
void ForEachArena(Act act) {
  for (unsigned i = 0; i < ArenaCount(); i++) act(ArenaOf(static_cast<ArenaIndex>(i)));
}

// The arena with this index, unless it was never made, or is destroyed: nullptr.
Arena* FindArena(uint64_t index);

// Makes an arena, with the index of the one that was destroyed last, if there is one. nullptr: out of memory, or there
// are as many as there can be.
Arena* MakeArena();

// Frees all blocks of an explicit arena. With `returns_memory`, their memory goes back to the system. No thread may use
// one of these blocks, or allocate or free one, at the same time or later. False, and nothing has changed: it is
// arena 0, or another thread is discarding its blocks; or, with `returns_memory`, a thread is bound to it.
// With `returns_memory` no thread can be bound to the arena any more, and RetireArena must follow.
bool DiscardBlocks(Arena& arena, bool returns_memory);

// Destroys an arena whose blocks DiscardBlocks has returned to the system; what it has counted is forgotten.
void RetireArena(Arena& arena);

// The calling thread allocates in the arena from now on. False, and nothing has changed: out of memory, the thread is
// ending, or the arena is being destroyed.
bool BindThread(Arena& arena);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_ARENA_H_
