// SPDX-License-Identifier: Apache-2.0
//
// Making and destroying explicit arenas, and binding threads to arenas (arena.h).
//
// Any thread, any time after StartThreads. REQUIRES: no lock is held, and the thread is in no HeapScope.
#ifndef HEAPTAP_ALLOCATOR_CORE_ARENA_LIFE_H_
#define HEAPTAP_ALLOCATOR_CORE_ARENA_LIFE_H_

#include "allocator/core/arena.h"

namespace heaptap {

// Makes an arena. It gets the index of the arena that was destroyed last, if there is one. nullptr: out of memory, or
// all indices are in use.
Arena* MakeArena();

// Frees all blocks of an explicit arena. With `returns_memory`, their memory goes back to the system. No thread may
// allocate or free a block of the arena during the call, or use one of these blocks during the call or later. False,
// and nothing has changed: the arena is arena 0, or another thread is discarding its blocks; or, with `returns_memory`,
// a thread is bound to it. With `returns_memory` no thread can be bound to the arena any more, and RetireArena must
// follow.
bool DiscardBlocks(Arena& arena, bool returns_memory);

// Destroys an arena whose blocks DiscardBlocks has returned to the system, and clears its counts.
void RetireArena(Arena& arena);

// The calling thread allocates in the arena from now on. False, and nothing has changed: out of memory, the thread is
// ending, or the arena is being destroyed.
bool BindThread(Arena& arena);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_ARENA_LIFE_H_
