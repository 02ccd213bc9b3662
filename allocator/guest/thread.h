// SPDX-License-Identifier: Apache-2.0
//
// What a guest keeps for each thread, above all the countdown to the next sample (decision.h).
//
// For the calling thread. Zero-initialised state is valid: the first allocation takes the slow path.
#ifndef HEAPTAP_ALLOCATOR_GUEST_THREAD_H_
#define HEAPTAP_ALLOCATOR_GUEST_THREAD_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/slab.h"
#include "allocator/platform/charge.h"

namespace heaptap {

// A thread asks after this much charge whether the interval has changed. A quarter of this would cost each pair of
// malloc and free 0.2 ns more.
inline constexpr uint64_t kStride = uint64_t{1} << 18;

struct GuestThread {
  uint64_t left;      // the charge until the next slow path
  uint64_t more;      // the rest of the countdown, behind `left`
  uint64_t begin;     // the value that `left` began with
  uint32_t interval;  // 1 + the interval that the countdown is drawn for; 0: sampling was off, or nothing is drawn
  bool finds_host;    // the thread is looking for the host's functions (host.h)
  bool starts;        // the thread is starting the guest (start.h)
  uint64_t lost;      // the weight of the sample for which TakeSample had no memory (samples.h); 0: none
};

extern constinit thread_local GuestThread guest_thread;

// The size by which an aligned allocation is charged: hosts may round its usable size up to the alignment.
constexpr size_t ChargedSize(size_t size, size_t alignment) { return size + alignment - 1; }

// Takes the charge of an allocation from the countdown. True: the countdown is over, and the slow path must decide. One
// instruction changes the countdown, so a signal handler that allocates does no harm.
[[gnu::always_inline]] inline bool Charge(size_t size) {
  bool is_over;
  asm("subq %2, %0" : "+m"(guest_thread.left), "=@ccb"(is_over) : "r"(ChargeOf(size)));
  return HEAPTAP_UNLIKELY(is_over);
}

// Whether Charge would return true.
[[gnu::always_inline]] inline bool WouldEnd(size_t size) {
  return HEAPTAP_UNLIKELY(guest_thread.left < ChargeOf(size));
}

// Takes a charge back, for an allocation that will be charged again on its way to the host.
inline void TakeBackCharge(size_t size) { guest_thread.left += ChargeOf(size); }

// The next allocation takes the slow path and draws a countdown. For the child of a fork, which must not repeat its
// parent's samples, and for the end of the start: the allocations of the start have begun a stride before the interval
// was known.
inline void ResetCountdown() {
  guest_thread.left = guest_thread.more = guest_thread.begin = 0;
  guest_thread.interval = 0;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_THREAD_H_
