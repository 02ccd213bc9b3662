// SPDX-License-Identifier: Apache-2.0
//
// The records of single samples that the collector keeps for prof_recent and the prof log. The eBPF programs decide by
// the books whether to keep records, so the process informs them of each change, and before a thread's first sample.
//
// Any thread, no lock held. Zero-initialised state is valid: no records.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_RECORDS_H_
#define HEAPTAP_ALLOCATOR_PROFILING_RECORDS_H_

#include <stdint.h>
#include <sys/types.h>

#include <atomic>

namespace heaptap {

// Starts what the configuration asks for. Called once, before other threads exist.
void StartRecords();

// For the child of a fork: the log is its parent's.
void ResetRecordsAfterFork();

// Tells the collector to keep records, if any are wanted.
void IntroduceRecords();

// Whether a log is running, and how many samples it has.
extern std::atomic<bool> is_logged;
extern std::atomic<uint64_t> logged_samples;

// Counts a sample if a log is running.
inline void CountLoggedSample() {
  if (is_logged.load(std::memory_order_relaxed)) logged_samples.fetch_add(1, std::memory_order_relaxed);
}

// experimental.prof_recent.alloc_max: the number of samples to keep records of; 0: none; -1: as many as fit.
// REQUIRES: maximum >= -1.
ssize_t RecentMaximum();
void SetRecentMaximum(ssize_t maximum);
// experimental.prof_recent.alloc_dump: gets the records from the collector and passes them to `write` as JSON, in any
// number of pieces. Returns 0 or an errno value (dump.h); `write` is not called if the request fails.
int DumpRecent(void (*write)(void* opaque, const char* text), void* opaque);

// prof.log_start, prof.log_stop: a JSON file about all samples in between. `path` nullptr: an automatic name.
// EFAULT: a log is already running, no log is running, or the collector failed.
int StartLog(const char* path);
int StopLog();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_RECORDS_H_
