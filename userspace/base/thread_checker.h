// SPDX-License-Identifier: Apache-2.0
//
// Checks that an object which is not thread-safe is not used by two threads at once. Debug builds abort if it is
// (require.h); others check nothing. One thread may hand the object over to another. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_THREAD_CHECKER_H_
#define HEAPTAP_USERSPACE_BASE_THREAD_CHECKER_H_

#include <atomic>
#include <thread>

namespace heaptap::base {

class ThreadChecker {
 public:
  ThreadChecker() = default;
  // No thread uses a copy yet.
  ThreadChecker(const ThreadChecker&) {}
  ThreadChecker& operator=(const ThreadChecker&) { return *this; }

 private:
  friend class OneThread;
  // True: the calling thread did not use the object before this call, so Leave must follow.
  bool Enter() const;
  void Leave() const;

  mutable std::atomic<std::thread::id> user_ = {};  // none: no thread uses the object
};

// While it exists, the calling thread uses the object of this checker.
class OneThread {
 public:
#ifdef HEAPTAP_DEBUG
  explicit OneThread(const ThreadChecker& checker) : checker_(checker), is_first_(checker.Enter()) {}
  ~OneThread() {
    if (is_first_) checker_.Leave();
  }

 private:
  const ThreadChecker& checker_;
  const bool is_first_;
#else
  explicit OneThread(const ThreadChecker&) {}
  ~OneThread() {}
#endif

 public:
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_THREAD_CHECKER_H_
