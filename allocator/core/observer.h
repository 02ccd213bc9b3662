// SPDX-License-Identifier: Apache-2.0
//
// All that the core asks of the layers above it, and tells them. The core calls these functions; the layer that is
// named defines them, so a call costs no more than any other. A program that links the core alone defines them itself.
//
// For any thread. Unless said otherwise: no lock is held, the thread is in no HeapScope, and errno is kept.
#ifndef HEAPTAP_ALLOCATOR_CORE_OBSERVER_H_
#define HEAPTAP_ALLOCATOR_CORE_OBSERVER_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

struct Block;
struct Heap;
struct Slab;

namespace observer {

// What the observer keeps in each heap: a Countdown first.
inline constexpr size_t kStateBytes = 704;

// --- process/ ---

// Before the process's first allocation that needs a heap, a run or a huge block; and before many others.
void BeforeUse();

// --- sampling/ ---

// The observer's state of a heap begins, with random stream number `stream` of `seed`; begins again in the child of a
// fork, where blocks may be ready. For the heap's user.
void StartHeap(Heap* heap, uint64_t seed, uint64_t stream);
void RestartHeap(Heap* heap, uint64_t seed);
// A thread takes the heap over.
void AdoptHeap(Heap* heap);

// Before the heap looks for a block. The observer may put back what is ready, and change the countdown. For the heap's
// user.
void BeforeAllocation(Heap* heap);

// The countdown of the class is over: the allocation at hand is the one. Begins another countdown, and returns the
// allocation's weight, which is not 0. For the heap's user.
uint64_t CountdownOver(Heap* heap, unsigned size_class);

// The weight of an allocation of that usable size, of no class, or that stays in its block (realloc); 0: the observer
// does not want it. For the heap's user.
uint64_t WeighLarge(Heap* heap, size_t size);
uint64_t WeighInPlace(Heap* heap, unsigned size_class);

// A block of the observer's own (kSampledOwner), for an allocation that it wants. nullptr: out of memory.
void* TakeBlock(unsigned size_class, size_t requested);
// What TakeBlock was told; the usable size if the observer does not keep that.
size_t RequestedSize(const Slab* slab, const Block* block);
// Such a block is free.
void ReturnBlock(Slab* slab, Block* block);

// A block that the observer wants is whole and usable; is about to be freed, or to become another. `usable`: its size;
// `requested`: what the program asked for.
void Allocated(const void* pointer, size_t usable, uint64_t weight, size_t requested);
void Freed(const void* pointer, size_t usable, size_t requested);

// Gives back what the observer's own slabs hold without need.
void Trim();

// --- profiling/ ---

// The active memory has grown. Locks may be held, and the thread may be in a HeapScope.
void ActiveGrew();

// Whether something is due at the end of this slow path; whether slow paths should end with a look at that more often.
// For the heap's user.
bool IsAnythingDue();
bool NeedsFrequentTicks();
// Does what is due.
void SlowPathEnds();

}  // namespace observer
}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_OBSERVER_H_
