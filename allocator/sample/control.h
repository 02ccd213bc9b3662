// SPDX-License-Identifier: Apache-2.0
//
// Who sets the interval of this library's samples: the control block of libheaptap.so or libheaptap-guest.so, if the
// process has one of them, or else the library's own.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_CONTROL_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_CONTROL_H_

#include <stdint.h>

namespace heaptap::sample {

// Sampling is off.
inline constexpr uint32_t kOff = UINT32_MAX;

// Whether the library's constructor has run. Before that, sampling is off.
bool HasStarted();

// lg of the mean bytes between samples, or kOff.
uint32_t CurrentLgInterval();

// The seed of the random numbers of all threads.
uint64_t Seed();

}  // namespace heaptap::sample

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_CONTROL_H_
