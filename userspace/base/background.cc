// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/background.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <utility>

#include "userspace/base/mutex.h"
#include "userspace/base/threads.h"

namespace heaptap::base {

Background::Background(Place place) {
  if (place == Place::kCaller) return;
  is_done_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // Without a thread the caller does the work, see Run().
  if (absl::StatusOr<std::thread> thread = StartThread([this] { Work(); }); thread.ok()) {
    thread_ = *std::move(thread);
  }
}

Background::~Background() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Background::Run(std::function<void()> work, std::function<void()> done) {
  const OneThread one_thread(user_);
  if (!thread_.joinable()) {
    work();
    return done();
  }
  size_++;
  MutexLock lock(&mutex_);
  to_do_.push_back({std::move(work), std::move(done)});
}

void Background::HandleDone() {
  const OneThread one_thread(user_);
  if (!thread_.joinable()) return;
  std::deque<std::function<void()>> done;
  {
    MutexLock lock(&mutex_);
    // An idle collector makes no system call here.
    eventfd_t count = 0;
    if (!done_.empty()) eventfd_read(is_done_.get(), &count);
    done = std::exchange(done_, {});
  }
  for (const std::function<void()>& one : done) {
    size_--;
    one();
  }
}

void Background::Work() {
  for (;;) {
    Piece piece;
    {
      MutexLock lock(&mutex_);
      const auto has_work = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_ending_ || !to_do_.empty(); };
      mutex_.Await(absl::Condition(&has_work));
      if (is_ending_) return;
      piece = std::move(to_do_.front());
      to_do_.pop_front();
    }
    piece.work();
    // Large objects are freed here, not in the recording's thread.
    piece.work = nullptr;
    MutexLock lock(&mutex_);
    done_.push_back(std::move(piece.done));
    eventfd_write(is_done_.get(), 1);
  }
}

void Background::WaitUntilIdle(Instant deadline) {
  while (size_ > 0 && Now() < deadline) {
    pollfd polled = {.fd = is_done_.get(), .events = POLLIN, .revents = 0};
    PollUntil(absl::MakeSpan(&polled, 1), deadline);
    HandleDone();
  }
}

}  // namespace heaptap::base
