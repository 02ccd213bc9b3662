// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/thread_exit.h"

#include <limits.h>
#include <pthread.h>

#include <atomic>

#include "allocator/core/heap_list.h"
#include "allocator/platform/libc.h"
#include "allocator/platform/mutex.h"

namespace heaptap {
namespace {

// The round of thread-specific destructors in which the thread ends for the allocator. Other destructors may still
// allocate and free, so it is the last round, except with ThreadSanitizer, which needs the last one itself.
#ifdef __SANITIZE_THREAD__
constexpr int kExitRound = PTHREAD_DESTRUCTOR_ITERATIONS - 1;
#else
constexpr int kExitRound = PTHREAD_DESTRUCTOR_ITERATIONS;
#endif

// Set with release order after the two variables below. Written under the lock of heaps, which fork takes.
constinit std::atomic<bool> has_key;
pthread_key_t key;
ThreadEnd thread_end;

void OnThreadExit(void* argument) {
  Heap* heap = static_cast<Heap*>(argument);
  if (++heap->exit_rounds < kExitRound && libc::FindThreadFunctions().setspecific(key, heap) == 0) return;
  thread_end(heap);
}

}  // namespace

bool TakeExitKey(ThreadEnd end) {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  if (has_key.load(std::memory_order_acquire)) return true;
  const libc::ThreadFunctions functions = libc::FindThreadFunctions();
  if (!functions) return false;
  MutexLock lock(heaps_mutex);
  if (has_key.load(std::memory_order_relaxed)) return true;
  thread_end = end;
  if (functions.key_create(&key, OnThreadExit) != 0) return false;
  has_key.store(true, std::memory_order_release);
  return true;
}

bool AwaitExit(Heap* heap, ThreadEnd end) {
  HEAPTAP_ASSERT(!Mutex::HoldsAny());
  return TakeExitKey(end) && libc::FindThreadFunctions().setspecific(key, heap) == 0;
}

}  // namespace heaptap
