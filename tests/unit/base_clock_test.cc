// SPDX-License-Identifier: Apache-2.0
#include <sys/eventfd.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "tests/unit/support/fake_clock.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::base {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(3);

TEST(Clock, InstantsAreMomentsOfTheKernelsClock) {
  timespec before;
  timespec after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  const Instant now = Now();
  clock_gettime(CLOCK_MONOTONIC, &after);
  EXPECT_GE(now, Instant() + absl::DurationFromTimespec(before));
  EXPECT_LE(now, Instant() + absl::DurationFromTimespec(after));
  EXPECT_EQ(Instant::FromNanoseconds(now.nanoseconds()), now);
}

TEST(Clock, InfiniteInstants) {
  EXPECT_LT(Instant::InfinitePast(), Instant());
  EXPECT_GT(Instant::InfiniteFuture(), Now());
  EXPECT_EQ(Now() - Instant::InfinitePast(), absl::InfiniteDuration());
  EXPECT_EQ(Instant::InfiniteFuture() - Now(), absl::InfiniteDuration());
}

TEST(Clock, NoWaitEndsBeforeItsDeadline) {
  Instant deadline = Now() + kShort;
  Sleep(kShort);
  EXPECT_GE(Now(), deadline);
  absl::Mutex mutex;
  const bool never = false;
  deadline = Now() + kShort;
  mutex.Lock();
  EXPECT_FALSE(AwaitUntil(mutex, absl::Condition(&never), deadline));
  mutex.Unlock();
  EXPECT_GE(Now(), deadline);
  const FileDescriptor silent(eventfd(0, EFD_CLOEXEC));
  pollfd polled = {silent.get(), POLLIN, 0};
  deadline = Now() + kShort;
  EXPECT_EQ(PollUntil(absl::MakeSpan(&polled, 1), deadline), 0);
  EXPECT_GE(Now(), deadline);
}

TEST(Clock, WaitsEndWhenTheirConditionIsTrue) {
  FakeClock clock;  // stands still: a wait for a moment would never end
  absl::Mutex mutex;
  const bool is_over = true;
  mutex.Lock();
  EXPECT_TRUE(AwaitUntil(mutex, absl::Condition(&is_over), Instant::InfiniteFuture()));
  mutex.Unlock();
  const FileDescriptor ready(eventfd(1, EFD_CLOEXEC));
  pollfd polled = {ready.get(), POLLIN, 0};
  EXPECT_EQ(PollUntil(absl::MakeSpan(&polled, 1), Now() + kShort), 1);
  EXPECT_EQ(polled.revents, POLLIN);
}

TEST(Clock, DeadlinesInThePastAreOver) {
  FakeClock clock;
  absl::Mutex mutex;
  const bool never = false;
  mutex.Lock();
  EXPECT_FALSE(AwaitUntil(mutex, absl::Condition(&never), Now() - kShort));
  mutex.Unlock();
  EXPECT_EQ(PollUntil({}, Now()), 0);
}

TEST(Clock, DifferencesDoNotFollowTheWallClock) {
  FakeClock clock;
  const Instant begin = Now();
  const absl::Time wall_begin = WallNow();
  clock.AdvanceWall(-absl::Hours(1));
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(Now() - begin, absl::Seconds(2));
  EXPECT_EQ(WallNow() - wall_begin, absl::Seconds(2) - absl::Hours(1));
  EXPECT_EQ(ToWall(begin), WallNow() - absl::Seconds(2));
}

TEST(Clock, SleepersWaitForTheFakeClock) {
  FakeClock clock;
  std::atomic<bool> is_awake = false;
  std::thread sleeper([&] {
    Sleep(absl::Hours(1));
    is_awake = true;
  });
  clock.AwaitWaiter(absl::Hours(1));
  clock.Advance(absl::Hours(1) - absl::Nanoseconds(1));
  clock.AwaitWaiter(absl::Nanoseconds(1));
  EXPECT_FALSE(is_awake);
  clock.Advance(absl::Nanoseconds(1));
  sleeper.join();
}

TEST(Clock, ProcessorTimeIsThatOfTheThread) {
  const absl::Duration begin = ThreadProcessorTime();
  std::thread other([] {
    for (const absl::Duration mine = ThreadProcessorTime(); ThreadProcessorTime() - mine < absl::Milliseconds(1);) {
    }
  });
  other.join();
  while (ThreadProcessorTime() == begin) {
  }
}

}  // namespace
}  // namespace heaptap::base
