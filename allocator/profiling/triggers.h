// SPDX-License-Identifier: Apache-2.0
//
// Triggers of dumps, lg_prof_interval and prof_gdump, and of printed statistics, stats_interval.
//
// Each check of an interval adds the bytes that the thread has allocated since its last check to a count for the
// process. When the count reaches the interval, the trigger fires, once even if it spans several intervals. As in
// jemalloc, each sample checks the interval of dumps. While sampling is off, slow paths check it. Slow paths always
// check the interval of statistics.
//
// prof_gdump: when the active memory is larger than ever before (core/observer.h, ActiveGrew), the calling thread makes
// a dump at the end of its slow path.
//
// Any thread. Zero-initialised state is valid: no triggers.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_TRIGGERS_H_
#define HEAPTAP_ALLOCATOR_PROFILING_TRIGGERS_H_

#include <stdint.h>

namespace heaptap {

// Starts what the configuration asks for. `print`: prints statistics (stats_interval_opts). Called once, before other
// threads exist.
void StartTriggers(void (*print)(const char* letters));

// lg_prof_interval in bytes; 0: no such trigger. Constant after StartTriggers.
extern uint64_t dump_interval_bytes;
// The slow part of CheckDumpInterval.
void CountTowardsDump();

// Checks the interval of dumps for the calling thread, and makes a dump if one is due. No lock held, in no HeapScope.
inline void CheckDumpInterval() {
  if (dump_interval_bytes != 0) CountTowardsDump();
}

// Cancels a high-water dump that is due. Also for the child of a fork: its parent makes the dump.
void ForgetHighWater();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_TRIGGERS_H_
