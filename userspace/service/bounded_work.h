// SPDX-License-Identifier: Apache-2.0
//
// Work that a target can block for ever, done by a thread that is abandoned after a time limit.
//
// An access to a target's memory can wait for a page fault handler (userfaultfd, a file system in user space), and the
// target itself may be that handler. A blocked thread cannot be cancelled before the target ends, and costs a stack:
// once kMaxAbandoned threads are blocked, no further work is done. Thread-safe.
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
  // Long for a page of memory, short for the work that waits behind it.
  static constexpr absl::Duration kLimit = absl::Seconds(1);
  static constexpr int kMaxAbandoned = 32;

  BoundedWork() = default;
  // An abandoned thread lives on and does not use this object.
  ~BoundedWork();
  BoundedWork(const BoundedWork&) = delete;
  BoundedWork& operator=(const BoundedWork&) = delete;

  // False while too many threads are blocked.
  bool HasRoom() const { return abandoned() < kMaxAbandoned; }

  // Runs `work` and waits for it. `work` must own all that it uses, because it may go on after Run has returned. False:
  // the time limit was reached, or there is no room.
  bool Run(std::function<void()> work, absl::Duration limit = kLimit);

  // Abandoned threads that are still blocked.
  int abandoned() const;

 private:
  struct Worker;
  static void Loop(std::shared_ptr<Worker> worker);

  absl::Mutex mutex_;
  std::shared_ptr<Worker> worker_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<std::atomic<int>> abandoned_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_BOUNDED_WORK_H_
