// SPDX-License-Identifier: Apache-2.0
//
// The functions by which the core calls the layers above it. The layer named before each group defines them; a program
// that links the core alone defines them itself.
//
// Any thread calls them. Unless a comment says otherwise, no lock is held, the thread is in no HeapScope, and errno is
// kept. "In a HeapScope": the calling thread has exclusive use of `heap`.
#ifndef HEAPTAP_ALLOCATOR_CORE_OBSERVER_H_
#define HEAPTAP_ALLOCATOR_CORE_OBSERVER_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

struct Arena;
struct Block;
struct Heap;
struct Slab;

namespace observer {

// Bytes of observer state in each heap. The state begins with a Countdown.
inline constexpr size_t kStateBytes = 704;

// --- process/ ---

// Called before the first allocation of the process that needs a heap, a run or a huge block, and before many others.
void BeforeUse();

// --- sampling/ ---

// Starts the observer's state of a new heap, with a random stream of `seed` that is the heap's own. A lock may be held
// during a call of this function and the next two.
void StartHeap(Heap* heap, uint64_t seed);
// Restarts the state in the child of a fork, where blocks may be ready.
void RestartHeap(Heap* heap, uint64_t seed);
// A thread takes the heap over.
void AdoptHeap(Heap* heap);
// The thread of a heap uses another heap from now on.
void MoveThread(Heap* from, Heap* to);

// Called before the heap looks for a block. The observer may put ready blocks back and change the countdown. In a
// HeapScope.
void BeforeAllocation(Heap* heap);

// Called when the countdown of the class has ended: the observer wants the current allocation. Begins the next
// countdown, and returns the weight of the allocation, which is not 0. In a HeapScope.
uint64_t CountdownOver(Heap* heap, unsigned size_class);

// The weight of an allocation outside slabs of this usable size. 0: the observer does not want it. In a HeapScope.
uint64_t WeighLarge(Heap* heap, size_t size);
// The weight of a realloc that keeps its block. 0: the observer does not want it. In a HeapScope.
uint64_t WeighInPlace(Heap* heap, unsigned size_class);

// An allocation that the observer wants. The core keeps it while the block lives.
struct Sample {
  size_t usable;     // bytes
  size_t requested;  // the size that the program requested
  uint64_t serial;   // unique in the process; not 0
};

// A serial number for the next such allocation.
uint64_t NextSerial();

// A block from a slab of the observer (kSampledOwner), for an allocation that it wants. nullptr: out of memory.
void* TakeBlock(Arena& arena, unsigned size_class, size_t requested, uint64_t serial);
// What TakeBlock was given for the block. `requested` is the usable size if the observer does not keep requested sizes.
// The serial number is kEnded after EndSample.
Sample SampleOf(const Slab* slab, const Block* block);
inline constexpr uint64_t kEnded = UINT64_MAX;
// The block is about to be freed. False: it is free already, and the free is refused (invalid_free.h). Freeing it again
// would hand it out twice, or release its slab while other blocks of the slab are live.
bool EndSample(const Slab* slab, const Block* block);
// Takes back a block that TakeBlock returned. REQUIRES: EndSample has returned true for the block.
void ReturnBlock(Slab* slab, Block* block);

// A block for a wanted allocation is ready for use.
void Allocated(const void* pointer, const Sample& sample, uint64_t weight);
// There was no memory for a wanted allocation. The program gets an ordinary block, if there is one.
void Lost(uint64_t weight);
// A block of a wanted allocation is about to be freed, moved or resized.
void Freed(const void* pointer, const Sample& sample);
// Allocates a block of the class for a wanted allocation: calls NextSerial, TakeBlock and Allocated. nullptr: out of
// memory.
void* AllocateBlock(Arena& arena, unsigned size_class, size_t requested, uint64_t weight);
// Frees a block that TakeBlock returned: calls EndSample, Freed and ReturnBlock.
void FreeBlock(Slab* slab, Block* block);

// Frees all live blocks of the observer's slab, as FreeBlock does. The observer no longer uses the slab. False: another
// thread has released it since the caller looked (Trim). REQUIRES: no thread allocates or frees a block of the arena.
bool DiscardBlocks(Arena& arena, Slab* slab);
// Forgets what the arena has counted.
void ForgetCounts(Arena* arena);

// The calling thread ends. Other destructors of the thread may still free blocks.
void ThreadEnds();

// Releases the observer's empty slabs of all arenas.
void Trim();

// --- profiling/ ---

// Active memory may have grown. Locks may be held, and the thread may be in a HeapScope.
void ActiveGrew();

// Whether the observer has work to do at the end of this slow path. In a HeapScope.
bool IsAnythingDue();
// Whether the core should call IsAnythingDue more often: every few slow paths. In a HeapScope.
bool NeedsFrequentTicks();
// Does the work that is due.
void SlowPathEnds();

}  // namespace observer
}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_OBSERVER_H_
