// SPDX-License-Identifier: Apache-2.0
//
// The allocator's clock in the hands of a test, and counts of work in the place of times. The linker sends the
// allocator's calls of ReadClock, and the background thread's calls of ReturnMemory, here (--wrap).
#ifndef HEAPTAP_TESTS_ALLOCATOR_SETTABLE_CLOCK_H_
#define HEAPTAP_TESTS_ALLOCATOR_SETTABLE_CLOCK_H_

#include <cstdint>

namespace heaptap::testing {

// While it lives, the time of the allocator stands still but for Advance. Afterwards it goes on from there, and never
// back. One at a time; any thread may call its functions.
class SettableClock {
 public:
  SettableClock();
  ~SettableClock();
  SettableClock(const SettableClock&) = delete;
  SettableClock& operator=(const SettableClock&) = delete;

  void Advance(uint64_t milliseconds);
};

// How often the allocator has read a clock so far, settable or not.
uint64_t ClockReads();

// Returns when the background thread has done a round of maintenance that began after the call.
void AwaitBackgroundRound();

// Takes so many slow paths that at least one of them reads the clock, and does what is due then.
void TakeSlowPaths();

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_SETTABLE_CLOCK_H_
