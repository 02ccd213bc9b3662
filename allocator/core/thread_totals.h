// SPDX-License-Identifier: Apache-2.0
//
// What the calling thread has allocated and freed: thread.allocated, thread.deallocated and thread.peak of mallctl.
//
// The fast paths count nothing. A heap knows how many blocks of each class it has made ready, and what the use of each
// slab was when it last looked; what is missing from that is what the thread has allocated and freed in between
// (Heap::SettleAllocations, SettleFrees). Everything else, samples, large blocks, blocks of other heaps, has slow paths
// that count. Read* settles, and is exact; it takes time proportional to the ready blocks, or to the heap's slabs that
// are not full. The counters behind the pointers follow at slow paths and at each Read*: a lower bound that lags by at
// most one batch of blocks of each class, or, for frees, by those in slabs whose turn has not come.
//
// Bytes of usable size, never decreasing; they begin with the thread at 0, and the child of a fork keeps them. realloc
// counts as an allocation and a free, in place too. For the calling thread; no lock held, and in no HeapScope.
#ifndef HEAPTAP_ALLOCATOR_CORE_THREAD_TOTALS_H_
#define HEAPTAP_ALLOCATOR_CORE_THREAD_TOTALS_H_

#include <stdint.h>

namespace heaptap {

uint64_t ReadThreadAllocated();
uint64_t ReadThreadDeallocated();
// Valid as long as the thread lives.
uint64_t* ThreadAllocatedCounter();
uint64_t* ThreadDeallocatedCounter();

// The largest value of allocated - deallocated since the last reset, less its value at that reset; without a reset,
// since the first read, which begins the search. Missed by at most 64 KiB, or 1 KiB for each slab that is not full if
// that is more, and one batch of each class.
uint64_t ReadThreadPeak();
void ResetThreadPeak();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_THREAD_TOTALS_H_
