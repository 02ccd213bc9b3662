// SPDX-License-Identifier: Apache-2.0
//
// What makes the process ask for a dump by itself: lg_prof_interval, prof_gdump; and stats_interval, which prints.
//
// An interval is looked at now and then: the bytes that the thread has allocated since its last look are added to a
// count for the process, and when that has grown by an interval it is time, once however many intervals it spans. As
// with jemalloc, the one of dumps is looked at when a sample is taken; while none are, and always for the one of
// statistics, the looks come with the thread's slow paths.
//
// The core asks what is due, and tells that the active memory has grown (core/observer.h): if it was never so much and
// such dumps are wanted, the calling thread takes one at the end of its slow path.
//
// Any thread. Zero-initialised state is valid: no triggers.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_TRIGGERS_H_
#define HEAPTAP_ALLOCATOR_PROFILING_TRIGGERS_H_

#include <stdint.h>

namespace heaptap {

// Reads what the process's configuration asks for. `print` prints the statistics that the letters ask for. Once, before
// other threads.
void StartTriggers(void (*print)(const char* letters));

// lg_prof_interval: bytes; 0: none. Constant once StartTriggers was called.
extern uint64_t dump_interval_bytes;
// The slow part of CheckDumpInterval.
void CountTowardsDump();

// Counts what the calling thread has allocated, and dumps if that is due. No lock held, in no HeapScope.
inline void CheckDumpInterval() {
  if (dump_interval_bytes != 0) CountTowardsDump();
}

// The high-water dump that is due is not wanted any more; for the child of a fork, whose parent takes it, too.
void ForgetHighWater();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_TRIGGERS_H_
