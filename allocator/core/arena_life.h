// SPDX-License-Identifier: Apache-2.0
//
// How an explicit arena comes and goes, and how a thread gets to one (arena.h).
//
// Any thread, any time after StartThreads. REQUIRES: no lock is held, and the thread is in no HeapScope.
#ifndef HEAPTAP_ALLOCATOR_CORE_ARENA_LIFE_H_
#define HEAPTAP_ALLOCATOR_CORE_ARENA_LIFE_H_

#include "allocator/core/arena.h"

namespace heaptap {

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

#endif  // HEAPTAP_ALLOCATOR_CORE_ARENA_LIFE_H_
