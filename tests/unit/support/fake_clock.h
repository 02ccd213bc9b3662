// SPDX-License-Identifier: Apache-2.0
//
// A clock for tests of userspace (userspace/base/clock.h): it stands still until the test moves it, and everything that
// waits for a moment waits until the test has moved the clock there. Programs that the tested code starts have the
// system's clock.
//
// Made before the threads that read it, and deleted after they have ended. Thread-safe.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_FAKE_CLOCK_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_FAKE_CLOCK_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"

namespace heaptap {

class FakeClock : public base::Clock {
 public:
  FakeClock() : before_(base::ReplaceClock(*this)) {}
  ~FakeClock() override { base::ReplaceClock(before_); }
  FakeClock(const FakeClock&) = delete;
  FakeClock& operator=(const FakeClock&) = delete;

  // Time passes.
  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    now_ = now_ + by;
    wall_now_ += by;
  }
  // Somebody sets the wall clock.
  void AdvanceWall(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    wall_now_ += by;
  }
  // Every thread is given so much processor time, during which no other time passes.
  void Work(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    processor_time_ += by;
  }
  // Return when a thread waits for a moment that is exactly `left` away, or at most `most`: then the result is how far.
  void AwaitWaiter(absl::Duration left) { AwaitWaiter(left, left); }
  absl::Duration AwaitWaiterWithin(absl::Duration most) { return AwaitWaiter(absl::Nanoseconds(1), most); }

  base::Instant Now() override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  absl::Time WallNow() override {
    absl::MutexLock lock(&mutex_);
    return wall_now_;
  }
  absl::Duration ThreadProcessorTime() override {
    absl::MutexLock lock(&mutex_);
    return processor_time_;
  }
  absl::Duration WaitAtMost(base::Instant deadline) override {
    // Of the system's time. Results do not depend on it.
    constexpr absl::Duration kLookInterval = absl::Milliseconds(1);
    absl::MutexLock lock(&mutex_);
    if (deadline <= now_) return absl::ZeroDuration();
    waited_for_.insert(deadline);
    return kLookInterval;
  }

 private:
  absl::Duration AwaitWaiter(absl::Duration least, absl::Duration most) {
    absl::MutexLock lock(&mutex_);
    // Who waits asks again and again. Those who have asked before may wait no longer.
    waited_for_.clear();
    const auto next = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waited_for_.lower_bound(now_ + least); };
    const auto is_waited_for = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return next() != waited_for_.end() && *next() <= now_ + most;
    };
    // Without a limit: support/main.cc names a test that hangs.
    mutex_.Await(absl::Condition(&is_waited_for));
    return *next() - now_;
  }

  base::Clock& before_;
  absl::Mutex mutex_;
  base::Instant now_ ABSL_GUARDED_BY(mutex_) = base::Instant() + absl::Hours(24);
  absl::Time wall_now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'790'000'000);
  absl::Duration processor_time_ ABSL_GUARDED_BY(mutex_) = {};
  std::set<base::Instant> waited_for_ ABSL_GUARDED_BY(mutex_);  // since AwaitWaiter was called
};

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_FAKE_CLOCK_H_
