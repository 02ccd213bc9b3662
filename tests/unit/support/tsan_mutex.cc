// SPDX-License-Identifier: Apache-2.0
//
// absl::Mutex for the program with ThreadSanitizer. Debian's library is not compiled for it, so that it would see no
// order between threads that the mutex puts into one. These definitions come before the library's: a lock that spins,
// of which ThreadSanitizer sees every step.
#include <sched.h>

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace {

// The mutex's own word, 0 if it is free.
std::atomic<intptr_t>& WordOf(absl::Mutex* mutex) {
  static_assert(sizeof(absl::Mutex) == sizeof(std::atomic<intptr_t>));
  return *reinterpret_cast<std::atomic<intptr_t>*>(mutex);
}

constexpr absl::Duration kPause = absl::Microseconds(50);

}  // namespace

namespace absl {

void Mutex::Lock() {
  while (WordOf(this).exchange(1, std::memory_order_acquire) != 0) sched_yield();
}

void Mutex::Unlock() { WordOf(this).store(0, std::memory_order_release); }

void Mutex::AssertHeld() const {
  if (WordOf(const_cast<Mutex*>(this)).load(std::memory_order_relaxed) == 0) abort();
}

void Mutex::Await(const Condition& condition) { AwaitWithDeadline(condition, InfiniteFuture()); }

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  return AwaitWithDeadline(condition, Now() + timeout);
}

// Its declaration does not say that it releases the mutex for a while.
ABSL_NO_THREAD_SAFETY_ANALYSIS bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  while (!condition.Eval()) {
    if (Now() >= deadline) return false;
    Unlock();
    SleepFor(kPause);
    Lock();
  }
  return true;
}

void Mutex::LockWhen(const Condition& condition) {
  Lock();
  Await(condition);
}

}  // namespace absl
