// SPDX-License-Identifier: Apache-2.0
//
// A mutex over futex(2). Its first state needs no code: unlocked. Not recursive. All mutexes of the allocator but
// two are held for a few hundred instructions at most, and never while a probe fires: the one that serialises dumps,
// and that of the statistics' snapshot.
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
    return state_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire, std::memory_order_relaxed);
  }

  // False if the mutex is still locked by another after `milliseconds`.
  bool LockWithin(uint64_t milliseconds) { return TryLock() || LockSlow(milliseconds); }

  void Unlock() {
    if (state_.exchange(kUnlocked, std::memory_order_release) == kContended) Wake();
  }

  // For the child of a fork, which has one thread: makes the mutex unlocked whoever held it.
  void Reset() { state_.store(kUnlocked, std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kUnlocked = 0;
  static constexpr uint32_t kLocked = 1;
  static constexpr uint32_t kContended = 2;  // locked, and somebody may sleep
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
