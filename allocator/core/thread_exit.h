// SPDX-License-Identifier: Apache-2.0
//
// Notice of the end of threads, from a destructor of thread-specific data.
//
// Any thread, after StartThreads (thread.h). Zero-initialised state is valid: no thread is awaited.
#ifndef HEAPTAP_ALLOCATOR_CORE_THREAD_EXIT_H_
#define HEAPTAP_ALLOCATOR_CORE_THREAD_EXIT_H_

#include "allocator/core/heap.h"

namespace heaptap {

// Called by a thread that ends, with its heap. Other destructors of the thread may still allocate. All calls below pass
// the same function.
using ThreadEnd = void (*)(Heap* heap);

// Takes a key while one is left: libraries may take all others when they start. False: no key is left, or libc has no
// threads yet. REQUIRES: no lock is held.
bool TakeExitKey(ThreadEnd end);

// Arranges for `end` to be called when the calling thread, which uses the heap, ends. False: the process has no key
// left, or no memory. May allocate. REQUIRES: no lock is held.
bool AwaitExit(Heap* heap, ThreadEnd end);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_THREAD_EXIT_H_
