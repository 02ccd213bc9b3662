// SPDX-License-Identifier: Apache-2.0
//
// The record of single samples that the collector keeps for prof_recent and the prof log. Whether it
// does is up to the kernel's books, so it is told: when it changes, and before the first sample that somebody hears.
//
// Any thread, no lock held. Zero-initialised state is valid: no record.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_RECORDS_H_
#define HEAPTAP_ALLOCATOR_PROFILING_RECORDS_H_

#include <stdint.h>
#include <sys/types.h>

#include <atomic>

namespace heaptap {

// Begins what the process's configuration asks for. Once, before other threads.
void StartRecords();

// The child of a fork makes no log: that is its parent's.
void ResetRecordsAfterFork();

// Tells the collector whether a record is to be kept, if it may think otherwise.
void IntroduceRecords();

// Whether a log is being made.
extern std::atomic<bool> is_logged;
extern std::atomic<uint64_t> logged_samples;

// Counts a sample, while a log is made.
inline void CountLoggedSample() {
  if (is_logged.load(std::memory_order_relaxed)) logged_samples.fetch_add(1, std::memory_order_relaxed);
}

// experimental.prof_recent.alloc_max: how many samples to keep a record of; 0: none, -1: as many as there is room for.
// REQUIRES: maximum >= -1.
ssize_t RecentMaximum();
void SetRecentMaximum(ssize_t maximum);
// experimental.prof_recent.alloc_dump: the records as JSON, in pieces. The collector answers. 0 or an errno value
// (dump.h). `write` may be called any number of times, or not at all if this fails.
int DumpRecent(void (*write)(void* opaque, const char* text), void* opaque);

// prof.log_start, prof.log_stop: a file of JSON about all samples in between. `path` nullptr: an automatic name.
// EFAULT: it runs already, or does not run, or the collector could not do it.
int StartLog(const char* path);
int StopLog();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_RECORDS_H_
