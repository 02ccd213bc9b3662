// SPDX-License-Identifier: Apache-2.0
//
// Work that takes long, in a thread of its own, while the recording's thread goes on with events.
//
// The pieces of work run one at a time, in the order in which they were passed. Work that `done` passes comes after the
// work that already waits. Not thread-safe: one thread owns this object.
#ifndef HEAPTAP_USERSPACE_BASE_BACKGROUND_H_
#define HEAPTAP_USERSPACE_BASE_BACKGROUND_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/mutex.h"
#include "userspace/base/thread_checker.h"

namespace heaptap::base {

class Background {
 public:
  enum class Place {
    kOwnThread,
    kCaller,  // Run calls `work` and `done` itself: for a recording that has nothing else to do
  };
  explicit Background(Place place);
  // Waits for the work that is being done, and gives up the rest.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // `work` may use only what is thread-safe. HandleDone calls `done` afterwards, unless this object ends before.
  void Run(std::function<void()> work, std::function<void()> done);

  // Becomes readable when HandleDone is to be called; negative: never.
  int fd() const { return is_done_.get(); }
  void HandleDone();
  // Handles finished work until no work is left, or until the deadline.
  void WaitUntilIdle(Instant deadline);
  // Pieces of work whose `done` has not been called yet.
  size_t size() const { return size_; }

 private:
  struct Piece {
    std::function<void()> work;
    std::function<void()> done;
  };
  void Work();

  FileDescriptor is_done_;  // an eventfd
  size_t size_ = 0;
  Mutex mutex_;
  std::deque<Piece> to_do_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> done_ ABSL_GUARDED_BY(mutex_);
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
  ThreadChecker user_;
};

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_BACKGROUND_H_
