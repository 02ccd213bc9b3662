// SPDX-License-Identifier: Apache-2.0
//
// The bytes that the calling thread has allocated and freed: thread.allocated, thread.deallocated and thread.peak of
// mallctl.
//
// The fast paths count nothing. A heap knows how many blocks of each class it has made ready, and how many blocks of
// each slab were in use at the last count. The difference from the current numbers is what the thread has allocated and
// freed since (Heap::SettleAllocations, SettleFrees). Samples, large blocks and blocks of other heaps are counted by
// slow paths. Read* is exact; it takes time proportional to the ready blocks, or to the heap's slabs that are not full.
// The counters behind the pointers are updated at slow paths and at each Read*: lower bounds that lag by at most one
// batch of blocks of each class, or, for frees, by the blocks of slabs whose turn has not come.
//
// Bytes of usable size, never decreasing. A thread starts at 0; the child of a fork keeps the values. Each realloc
// counts as an allocation and a free. For the calling thread. REQUIRES: no lock is held, the thread is in no HeapScope.
#ifndef HEAPTAP_ALLOCATOR_CORE_THREAD_TOTALS_H_
#define HEAPTAP_ALLOCATOR_CORE_THREAD_TOTALS_H_

#include <stdint.h>

namespace heaptap {

uint64_t ReadThreadAllocated();
uint64_t ReadThreadDeallocated();
// Valid for the life of the thread.
uint64_t* ThreadAllocatedCounter();
uint64_t* ThreadDeallocatedCounter();

// The largest value of allocated - deallocated since the last reset, less its value at the reset. Without a reset, the
// first read starts the watch. The error is at most 64 KiB, or 1 KiB for each slab that is not full if that is more,
// plus one batch of each class.
uint64_t ReadThreadPeak();
void ResetThreadPeak();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_THREAD_TOTALS_H_
