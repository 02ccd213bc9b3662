// SPDX-License-Identifier: Apache-2.0
//
// A mutex on futex(2). Zero-initialised state is valid: unlocked. Not recursive. Lock and Unlock order memory as
// std::mutex does. allocator/README.md lists the allocator's mutexes and what is done under each; no probe fires while
// one is held, except under the mutex of dumps.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_MUTEX_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_MUTEX_H_

#include <stdint.h>

#include <atomic>

namespace heaptap {

class Mutex {
 public:
  void Lock() {
    if (!TryLock()) LockSlow(kForever);
  }

  bool TryLock() {
    uint32_t expected = kUnlocked;
    // Acquire: sees what the last holder wrote before its Unlock.
    return state_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire, std::memory_order_relaxed);
  }

  // False if another thread holds the mutex for all of `milliseconds`.
  bool LockWithin(uint64_t milliseconds) { return TryLock() || LockSlow(milliseconds); }

  void Unlock() {
    // Release: the next holder sees what this one wrote.
    if (state_.exchange(kUnlocked, std::memory_order_release) == kContended) Wake();
  }

  // For the child of a fork, which has one thread: unlocks the mutex, even one that a thread of the parent held.
  void Reset() { state_.store(kUnlocked, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kUnlocked = 0;
  static constexpr uint32_t kLocked = 1;
  static constexpr uint32_t kContended = 2;  // locked, and threads may be waiting in the kernel
  static constexpr uint64_t kForever = UINT64_MAX;

  bool LockSlow(uint64_t milliseconds);
  void Wake();

  std::atomic<uint32_t> state_;
};

class MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_MUTEX_H_
