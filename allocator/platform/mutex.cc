// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/mutex.h"

#include <linux/futex.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>

#include "allocator/platform/clock.h"
#include "allocator/platform/system.h"

namespace heaptap {

bool Mutex::LockSlow(uint64_t milliseconds) {
  // Critical sections are short: a little spinning usually saves two system calls.
  constexpr int kSpins = 100;
  for (int i = 0; i < kSpins; i++) {
    if (state_.load(std::memory_order_relaxed) == kUnlocked && Take()) return true;
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

#ifdef HEAPTAP_DEBUG

namespace {

constexpr const char* kNames[kLockRanks] = {
    "background thread", "start", "snapshot", "dump",      "heaps", "arena", "pool", "purge",
    "huge cache",        "units", "log",      "arena name"};

// What the thread has locked. A signal handler leaves it as it was.
struct Held {
  uint32_t count[kLockRanks];
};
constinit thread_local Held held{};

[[noreturn]] void FailOrder(LockRank wanted, unsigned held_rank) {
  Message message;
  message << "<heaptap>: lock order: \"" << kNames[static_cast<unsigned>(wanted)] << "\" is locked while \""
          << kNames[held_rank] << "\" is held\n";
  message.Print();
  abort();
}

[[noreturn]] void FailUnlock(LockRank rank) {
  Message message;
  message << "<heaptap>: lock order: \"" << kNames[static_cast<unsigned>(rank)]
          << "\" is unlocked by a thread that does not hold it\n";
  message.Print();
  abort();
}

}  // namespace

bool Mutex::HoldsAny() {
  unsigned locks = 0;
  for (unsigned rank = static_cast<unsigned>(LockRank::kStart); rank < kLockRanks; rank++) locks += held.count[rank];
  return locks != 0;
}

bool Mutex::Holds(LockRank rank) { return held.count[static_cast<unsigned>(rank)] != 0; }

bool Mutex::IsMine() const { return holder_.load(std::memory_order_relaxed) == &held; }

void Mutex::CheckOrder() const {
  const unsigned own = static_cast<unsigned>(rank_);
  const bool can_be_several = (rank_ == LockRank::kArena || rank_ == LockRank::kPool) &&
                              held.count[static_cast<unsigned>(LockRank::kHeaps)] != 0;
  for (unsigned rank = can_be_several ? own + 1 : own; rank < kLockRanks; rank++) {
    if (held.count[rank] != 0) FailOrder(rank_, rank);
  }
}

bool Mutex::NoteLocked() {
  held.count[static_cast<unsigned>(rank_)]++;
  holder_.store(&held, std::memory_order_relaxed);
  return true;
}

void Mutex::NoteUnlocked() {
  if (!IsMine()) FailUnlock(rank_);
  holder_.store(nullptr, std::memory_order_relaxed);
  held.count[static_cast<unsigned>(rank_)]--;
}

#endif

}  // namespace heaptap
