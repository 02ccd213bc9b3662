// SPDX-License-Identifier: Apache-2.0
//
// Work that a target can make wait for ever, done by a thread that is given up then.
//
// Reading and writing a target's memory may wait for whoever serves its page faults (userfaultfd, a file system in user
// space), and that may be the target itself. A thread that waits so cannot be called back before the target ends; it
// costs a stack, so there is a bound to their number, and beyond it nothing is tried any more.
// Thread-safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_BOUNDED_WORK_H_
#define HEAPTAP_USERSPACE_SERVICE_BOUNDED_WORK_H_

#include <atomic>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace heaptap::service {

class BoundedWork {
 public:
  // Long for a page of memory, short for those who wait behind it.
  static constexpr absl::Duration kLimit = absl::Seconds(1);
  static constexpr int kMaxGivenUp = 32;

  BoundedWork() = default;
  // A thread that is given up lives on; nothing of it needs this object.
  ~BoundedWork();
  BoundedWork(const BoundedWork&) = delete;
  BoundedWork& operator=(const BoundedWork&) = delete;

  // Whether work is done at all: not while too many wait.
  bool HasRoom() const { return given_up() < kMaxGivenUp; }

  // Runs `work` and waits for it. It must own all that it uses, as it may go on after this has returned. False: it was
  // given up, or there is no room.
  bool Run(std::function<void()> work, absl::Duration limit = kLimit);

  // Threads that wait at present.
  int given_up() const;

 private:
  struct Worker;
  static void Loop(std::shared_ptr<Worker> worker);

  absl::Mutex mutex_;
  std::shared_ptr<Worker> worker_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<std::atomic<int>> given_up_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_BOUNDED_WORK_H_
