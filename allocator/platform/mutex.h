// SPDX-License-Identifier: Apache-2.0
//
// A mutex on futex(2). Zero-initialised state is valid: unlocked. Not recursive. Lock and Unlock order memory as
// std::mutex does. allocator/README.md lists the allocator's mutexes and what is done under each; no probe fires while
// one is held, except under the mutex of dumps.
//
// Debug builds assert the order of locks: Lock aborts, and names both locks, if the thread holds a lock of a later rank
// or the lock itself. TryLock and LockWithin give up in the end, so they may be called in any order. In a release build
// a mutex has only its state, and no rank.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_MUTEX_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_MUTEX_H_

#include <stdint.h>

#include <atomic>

namespace heaptap {

// All locks of the allocator, in the order in which a thread takes them. allocator/README.md says what each protects.
enum class LockRank : uint8_t {
  kBackgroundThread,
  kStart,
  kSnapshot,
  kDump,
  kHeaps,
  kArena,  // several of kArena, or of kPool, only under kHeaps
  kPool,
  kPurge,
  kHugeCache,
  kUnits,
  kLog,
  kArenaName,
};
inline constexpr unsigned kLockRanks = static_cast<unsigned>(LockRank::kArenaName) + 1;

class Mutex {
 public:
#ifdef HEAPTAP_DEBUG
  constexpr explicit Mutex(LockRank rank) : rank_(rank) {}
#else
  constexpr explicit Mutex(LockRank) {}
#endif

  void Lock() {
    CheckOrder();
    if (!Take()) LockSlow(kForever);
    NoteLocked();
  }

  bool TryLock() { return Take() && NoteLocked(); }

  // False if another thread holds the mutex for all of `milliseconds`.
  bool LockWithin(uint64_t milliseconds) { return TryLock() || (LockSlow(milliseconds) && NoteLocked()); }

  void Unlock() {
    NoteUnlocked();
    // Release: the next holder sees what this one wrote.
    if (state_.exchange(kUnlocked, std::memory_order_release) == kContended) Wake();
  }

  // For the child of a fork, which has one thread: unlocks the mutex, even one that a thread of the parent held.
  void Reset() {
    if (IsMine()) NoteUnlocked();
    state_.store(kUnlocked, std::memory_order_relaxed);
  }

#ifdef HEAPTAP_DEBUG
  // Whether the calling thread holds any mutex but that of the background thread, under which libc allocates.
  static bool HoldsAny();
  // Whether it holds a mutex of this rank.
  static bool Holds(LockRank rank);
  // Whether it holds this one.
  bool IsMine() const;
#endif

 private:
#ifdef HEAPTAP_DEBUG
  void CheckOrder() const;
  bool NoteLocked();  // always true
  void NoteUnlocked();

  LockRank rank_;
  std::atomic<const void*> holder_{};  // the thread that has locked it, by an address that is the thread's
#else
  void CheckOrder() const {}
  bool NoteLocked() { return true; }
  void NoteUnlocked() {}
  bool IsMine() const { return false; }
#endif

  static constexpr uint32_t kUnlocked = 0;
  static constexpr uint32_t kLocked = 1;
  static constexpr uint32_t kContended = 2;  // locked, and threads may be waiting in the kernel
  static constexpr uint64_t kForever = UINT64_MAX;

  bool Take() {
    uint32_t expected = kUnlocked;
    // Acquire: sees what the last holder wrote before its Unlock.
    return state_.compare_exchange_strong(expected, kLocked, std::memory_order_acquire, std::memory_order_relaxed);
  }

  bool LockSlow(uint64_t milliseconds);
  void Wake();

  std::atomic<uint32_t> state_{};
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
