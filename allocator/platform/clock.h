// SPDX-License-Identifier: Apache-2.0
//
// The time, from the vDSO. The allocator reads it nowhere else, so a test that replaces ReadClock when it is linked
// sets the time of the whole allocator (tests/allocator/settable_clock.h).
//
// Nothing here touches errno. Any thread, any time, also in a signal handler.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_CLOCK_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_CLOCK_H_

#include <stdint.h>
#include <time.h>

namespace heaptap {

// Finds the vDSO, so that the clock needs no system call from then on. Called once.
void StartClock();

// Nanoseconds of CLOCK_MONOTONIC or CLOCK_MONOTONIC_COARSE.
uint64_t ReadClock(clockid_t clock);

inline uint64_t Nanoseconds() { return ReadClock(CLOCK_MONOTONIC); }

// Milliseconds of the same clock. The coarse one is cheaper, and a few milliseconds behind.
inline constexpr uint64_t kNanosecondsPerMillisecond = 1000000;
inline uint64_t Milliseconds() { return Nanoseconds() / kNanosecondsPerMillisecond; }
inline uint64_t CoarseMilliseconds() { return ReadClock(CLOCK_MONOTONIC_COARSE) / kNanosecondsPerMillisecond; }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_CLOCK_H_
