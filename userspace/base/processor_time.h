// SPDX-License-Identifier: Apache-2.0
//
// The processor time that a thread has used. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_PROCESSOR_TIME_H_
#define HEAPTAP_USERSPACE_BASE_PROCESSOR_TIME_H_

#include <time.h>

#include "absl/time/time.h"

namespace heaptap::base {

// Of the calling thread, since it began.
inline absl::Duration ThreadProcessorTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_PROCESSOR_TIME_H_
