// SPDX-License-Identifier: Apache-2.0
#include "userspace/base/clock.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace heaptap::base {
namespace {

timespec Read(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return time;
}

class SystemClock : public Clock {
 public:
  Instant Now() override { return Instant() + absl::DurationFromTimespec(Read(CLOCK_MONOTONIC)); }
  absl::Time WallNow() override { return absl::Now(); }
  absl::Duration ThreadProcessorTime() override { return absl::DurationFromTimespec(Read(CLOCK_THREAD_CPUTIME_ID)); }
  absl::Duration WaitAtMost(Instant deadline) override { return deadline - Now(); }
};

// Never deleted: threads may read the clock while the program ends.
Clock*& CurrentClock() {
  static Clock* current = new SystemClock;
  return current;
}

}  // namespace

Instant Now() { return CurrentClock()->Now(); }
absl::Time WallNow() { return CurrentClock()->WallNow(); }
absl::Duration ThreadProcessorTime() { return CurrentClock()->ThreadProcessorTime(); }

absl::Time ToWall(Instant past) { return WallNow() - (Now() - past); }

bool AwaitUntil(absl::Mutex& mutex, const absl::Condition& condition, Instant deadline) {
  while (!mutex.AwaitWithTimeout(condition, CurrentClock()->WaitAtMost(deadline))) {
    if (Now() >= deadline) return false;
  }
  return true;
}

int PollUntil(absl::Span<pollfd> polled, Instant deadline) {
  for (;;) {
    // Rounded up, so that the last millisecond does not spin.
    const absl::Duration wait = absl::Ceil(CurrentClock()->WaitAtMost(deadline), absl::Milliseconds(1));
    const absl::Duration possible = std::clamp(wait, absl::ZeroDuration(), absl::Hours(1));
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(absl::ToInt64Milliseconds(possible)));
    if (ready != 0 || Now() >= deadline) return ready;
  }
}

void Sleep(absl::Duration duration) { PollUntil({}, Now() + duration); }

Clock& ReplaceClock(Clock& clock) { return *std::exchange(CurrentClock(), &clock); }

}  // namespace heaptap::base
