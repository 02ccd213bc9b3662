// SPDX-License-Identifier: Apache-2.0
//
// What a process may ask of its own profile: the meaning behind prof.*, thread.prof.* and experimental.prof_recent.* of
// mallctl. Dumps are in dump.h.
//
// Any thread, no lock held. Where it is said that something is told to the collector, a process that nobody follows
// succeeds too: it has no samples that could be wrong.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_H_
#define HEAPTAP_ALLOCATOR_PROFILING_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace heaptap {

// Begins what the process's configuration asks for. Once, before other threads.
void StartProfiling();

// prof.active. The calling thread follows at once, others with their next slow path (contract.h).
bool IsProfilingActive();
void SetProfilingActive(bool active);

// thread.prof.active of the calling thread, and prof.thread_active_init, what new threads begin with.
bool IsThreadActive();
void SetThreadActive(bool active);
bool IsThreadActiveInitially();
void SetThreadActiveInitially(bool active);

// thread.prof.name of the calling thread; "" if it has none. With prof_sys_thread_name it is the system's name, and
// SetThreadName must not be called. The text stays valid while the thread lives and sets no other name.
const char* ThreadName();
// Keeps at most 15 bytes. EINVAL: nullptr, or a character that is neither graphic nor blank.
int SetThreadName(const char* name);

// Tells the collector the thread's name and whatever else it must know before the thread's next sample.
void IntroduceThread();

// prof.gdump: a dump whenever the active memory is larger than ever before.
bool IsHighWaterDumped();
void SetHighWaterDumped(bool dumped);

// prof.lg_sample: lg of the mean bytes between samples, whoever has set it.
uint32_t SamplingRate();

// prof.reset: all samples so far vanish from later dumps; told to the collector.
void ResetProfile();
// The same, and a new rate, which is clipped to HEAPTAP_MAX_LG_SAMPLE. A rate that the collector has set still wins.
void ResetProfile(size_t lg_sample);

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

// prof.stats.*: what prof_stats counts, for small class `size_class` or, from kSmallClasses on, the larger classes in
// order.
struct SampleStatistics {
  uint64_t requested;  // sum of the requested sizes, bytes
  uint64_t count;
};
struct LiveAndAccumulated {
  SampleStatistics live;
  SampleStatistics accumulated;
};
LiveAndAccumulated ReadSampleStatistics(unsigned size_class);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_H_
