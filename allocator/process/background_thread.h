// SPDX-License-Identifier: Apache-2.0
//
// The thread of background_thread:true. Slow paths return memory to the system; this thread does the same for a process
// that is idle, or whose threads take no slow path.
//
// The child of a fork has no such thread until it asks for one, as in jemalloc. The thread blocks all signals, and
// allocates nothing. Any thread, any time after StartProcess; not in a signal handler.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_BACKGROUND_THREAD_H_
#define HEAPTAP_ALLOCATOR_PROCESS_BACKGROUND_THREAD_H_

namespace heaptap {

// False: the system refuses a thread.
bool StartBackgroundThread();

// Waits until the thread has ended.
void StopBackgroundThread();

bool HasBackgroundThread();

// For the child of a fork.
void ForgetBackgroundThread();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_BACKGROUND_THREAD_H_
