// SPDX-License-Identifier: Apache-2.0
//
// The time of the eBPF programs.
#ifndef HEAPTAP_USERSPACE_BASE_MONOTONIC_H_
#define HEAPTAP_USERSPACE_BASE_MONOTONIC_H_

#include <time.h>

#include <cstdint>

namespace heaptap::base {

// Nanoseconds of CLOCK_MONOTONIC.
inline uint64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_MONOTONIC_H_
