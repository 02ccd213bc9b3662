// SPDX-License-Identifier: Apache-2.0
#include "allocator/platform/vdso.h"

#include <gtest/gtest.h>
#include <sys/auxv.h>

#include <ctime>

namespace heaptap {
namespace {

TEST(Vdso, HasTheClock) {
  ClockFunction read = FindVdsoClock(reinterpret_cast<const void*>(getauxval(AT_SYSINFO_EHDR)));
  ASSERT_NE(read, nullptr);
  timespec before{};
  timespec now{};
  timespec after{};
  clock_gettime(CLOCK_MONOTONIC, &before);
  EXPECT_EQ(read(CLOCK_MONOTONIC, &now), 0);
  clock_gettime(CLOCK_MONOTONIC, &after);
  auto nanoseconds = [](const timespec& time) { return time.tv_sec * 1000000000 + time.tv_nsec; };
  EXPECT_LE(nanoseconds(before), nanoseconds(now));
  EXPECT_LE(nanoseconds(now), nanoseconds(after));
}

TEST(Vdso, MayBeMissing) { EXPECT_EQ(FindVdsoClock(nullptr), nullptr); }

}  // namespace
}  // namespace heaptap
