// SPDX-License-Identifier: Apache-2.0
//
// The interval that a collector has told the process through the semaphores of heaptap:rate (contract.h), before it
// could write the interval to the control block.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_TOLD_RATE_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_TOLD_RATE_H_

#include <stdint.h>

namespace heaptap {

// The process follows the told interval from now on. Returns its lg, or HEAPTAP_NO_RATE: none is told.
uint32_t FollowToldRate();

// Stops following the told interval if no collector has entered itself in the control block: the process goes back to
// its own interval. Has no effect if the process follows no told interval.
void DropUnconfirmedRate();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_TOLD_RATE_H_
