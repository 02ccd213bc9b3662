// SPDX-License-Identifier: Apache-2.0
//
// Mutexes that know in which order a thread takes them. Debug builds (require.h) abort if a thread takes a mutex while
// it holds another one of the same or a later rank; userspace/README.md says which mutex has which rank. Other builds
// check nothing. The annotations are checked where clang compiles (-Wthread-safety).
#ifndef HEAPTAP_USERSPACE_BASE_MUTEX_H_
#define HEAPTAP_USERSPACE_BASE_MUTEX_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace heaptap::base {

// In the order in which a thread takes them.
enum class LockRank : uint8_t {
  kQuestion,  // a question to the recording's thread; its client is charged under this mutex
  kData,      // most mutexes: code that holds one calls nothing that takes another of them
  kEnding,    // the list of killed processes, to which a crew adds its own when it ends
  kMessages,  // anybody may say something
  kMessageQueue,
};

class ABSL_LOCKABLE Mutex : public absl::Mutex {
 public:
  explicit Mutex(LockRank rank = LockRank::kData) : rank_(rank) {}
  LockRank rank() const { return rank_; }

 private:
  const LockRank rank_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex);
  ~MutexLock() ABSL_UNLOCK_FUNCTION();
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_MUTEX_H_
