// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "allocator/platform/system.h"

namespace heaptap {

bool Mutex::LockSlow(uint64_t milliseconds) {
  // Critical sections are short: a little spinning usually saves two system calls.
  constexpr int kSpins = 100;
  for (int i = 0; i < kSpins; i++) {
    if (state_.load(std::memory_order_relaxed) == kUnlocked && TryLock()) return true;
    __builtin_ia32_pause();
  }
  uint64_t deadline = milliseconds == kForever ? 0 : Milliseconds() + milliseconds;
  // Acquire: the exchange may lock the mutex.
  while (state_.exchange(kContended, std::memory_order_acquire) != kUnlocked) {
    timespec left{};
    if (milliseconds != kForever) {
      uint64_t now = Milliseconds();
      if (now >= deadline) return false;
      left.tv_sec = static_cast<time_t>((deadline - now) / 1000);
      left.tv_nsec = static_cast<long>((deadline - now) % 1000 * 1000000);
    }
    SystemCall(SYS_futex, reinterpret_cast<long>(&state_), FUTEX_WAIT_PRIVATE, kContended,
               milliseconds == kForever ? 0 : reinterpret_cast<long>(&left));
  }
  return true;
}

void Mutex::Wake() { SystemCall(SYS_futex, reinterpret_cast<long>(&state_), FUTEX_WAKE_PRIVATE, 1); }

}  // namespace heaptap
