// SPDX-License-Identifier: Apache-2.0
//
// The countdown of each thread to its next sample. `heaptap_sample_left` (sample.h) is the part that allocators see;
// the rest is kept here. `left` is never above kStride, so that a thread notices a change of the interval soon. The
// exponential law has no memory, so the rest of a countdown may be dropped with each change.
//
// For the calling thread. A signal handler that interrupts one of these functions may make a thread draw a new
// countdown, which does not change the law. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_THREADS_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_THREADS_H_

#include <stdint.h>

namespace heaptap::sample {

// A thread asks after this many bytes whether the interval has changed. Less would cost more slow paths.
inline constexpr uint64_t kStride = uint64_t{1} << 16;

// `charge` bytes were more than heaptap_sample_left, and have been subtracted from it. If they end the countdown, which
// has the probability 1 - exp(-charge / R), begins a new one and returns the lg of the interval. Otherwise returns
// kOff.
uint32_t EndCountdown(uint64_t charge);

// Uniform in (0, 1].
double DrawUnit();

}  // namespace heaptap::sample

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_THREADS_H_
