// SPDX-License-Identifier: Apache-2.0
//
// The list of all heaps except the shared ones, and the list of parked heaps. For the files of core/ that give heaps to
// threads.
//
// Any thread, after StartThreads. Zero-initialised state is valid: no heap.
#ifndef HEAPTAP_ALLOCATOR_CORE_HEAP_LIST_H_
#define HEAPTAP_ALLOCATOR_CORE_HEAP_LIST_H_

#include <stdint.h>

#include "allocator/core/heap.h"
#include "allocator/platform/mutex.h"

namespace heaptap {

struct Arena;

// For the variables below, for fields of Heap (heap.h) and Arena (arena.h), and for the list of arenas.
extern constinit Mutex heaps_mutex;
extern Heap* all_heaps;     // linked by Heap::next; grows at its beginning, and no heap leaves it
extern Heap* parked_heaps;  // linked by Heap::next_parked
extern Heap* last_parked;   // undefined if no heap is parked
extern uint64_t parked_count;
extern uint64_t heap_serial;    // of the last heap
extern uint64_t observer_seed;  // for the observer's state of the heaps

inline constexpr int kAnyArena = -1;

// The first three functions REQUIRE heaps_mutex; the child of a fork parks heaps without it.

// Parks the heap as the next one that a new thread gets.
void Park(Heap* heap);
// Parks the heap as the last one that a new thread gets.
void ParkBehindOthers(Heap* heap);
// Takes the first parked heap of the arena for the calling thread, which uses it without the lock, clears `busy`
// afterwards, and parks it again or keeps it. The child of a fork in between finds that the heap is busy, and abandons
// it. nullptr: no such heap is parked.
Heap* TakeParked(int arena);

// Notes that nothing will report the end of the calling thread, which uses the heap: once the thread is gone, a later
// thread gets the heap. REQUIRES: the lock is not held.
void NoteThread(Heap* heap);
// In the child of a fork, where the calling thread has a new number: updates the note.
void RenumberThread(Heap* heap);

// A heap for the calling thread. nullptr: out of memory, or the arena is being discarded.
Heap* AdoptOrMakeHeap(Arena& arena);

// The first heap of the list of all heaps. It leads to all heaps that exist now.
Heap* FirstHeap();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_HEAP_LIST_H_
