// SPDX-License-Identifier: Apache-2.0
//
// The only clock of userspace (tests/layers checks that). There are two kinds of time:
//
//   Now()      an Instant of CLOCK_MONOTONIC, which nobody can set: differences, deadlines, accounts
//   WallNow()  an absl::Time: what people and files are told
//
// They have different types, so that they are never subtracted from each other. Everything here is thread-safe, except
// that a clock may be replaced only while no other thread reads it.
#ifndef HEAPTAP_USERSPACE_BASE_CLOCK_H_
#define HEAPTAP_USERSPACE_BASE_CLOCK_H_

#include <poll.h>

#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace heaptap::base {

// A moment of the monotonic clock, which the eBPF programs use too.
class Instant {
 public:
  // The beginning of the clock: before every reading of it.
  constexpr Instant() = default;
  static constexpr Instant FromNanoseconds(uint64_t nanoseconds) {
    return Instant(absl::Nanoseconds(static_cast<int64_t>(nanoseconds)));
  }
  static constexpr Instant InfinitePast() { return Instant(-absl::InfiniteDuration()); }
  static constexpr Instant InfiniteFuture() { return Instant(absl::InfiniteDuration()); }

  uint64_t nanoseconds() const { return absl::ToInt64Nanoseconds(since_begin_); }

  friend Instant operator+(Instant at, absl::Duration by) { return Instant(at.since_begin_ + by); }
  friend Instant operator-(Instant at, absl::Duration by) { return Instant(at.since_begin_ - by); }
  friend absl::Duration operator-(Instant to, Instant from) { return to.since_begin_ - from.since_begin_; }
  friend constexpr bool operator==(Instant a, Instant b) { return a.since_begin_ == b.since_begin_; }
  friend constexpr bool operator<(Instant a, Instant b) { return a.since_begin_ < b.since_begin_; }
  friend constexpr bool operator>(Instant a, Instant b) { return b < a; }
  friend constexpr bool operator<=(Instant a, Instant b) { return !(b < a); }
  friend constexpr bool operator>=(Instant a, Instant b) { return !(a < b); }

 private:
  constexpr explicit Instant(absl::Duration since_begin) : since_begin_(since_begin) {}

  absl::Duration since_begin_ = {};
};

Instant Now();
absl::Time WallNow();
// The processor time of the calling thread, since the thread began.
absl::Duration ThreadProcessorTime();

// The time of the wall clock at a past instant, as the clock is set now.
absl::Time ToWall(Instant past);

// These functions wait. None of them gives up before its deadline, and with a deadline in the past none waits.
//
// Waits for the condition, with the mutex held. False: the condition is still not true at the deadline.
bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, Instant deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
// Like poll(2), which may end with EINTR.
int PollUntil(absl::Span<pollfd> polled, Instant deadline);
void Sleep(absl::Duration duration);

// Where the functions above get the time from. Tests have a clock of their own (tests/unit/support/fake_clock.h).
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() = 0;
  virtual absl::Time WallNow() = 0;
  virtual absl::Duration ThreadProcessorTime() = 0;
  // A thread is about to wait until `deadline`: how long may it wait before it asks again?
  virtual absl::Duration WaitAtMost(Instant deadline) = 0;
};

// Returns the previous clock. `clock` must outlive its use.
Clock& ReplaceClock(Clock& clock);

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_CLOCK_H_
