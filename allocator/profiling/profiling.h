// SPDX-License-Identifier: Apache-2.0
//
// What a process may ask of its own profile: the meaning behind prof.* and thread.prof.* of mallctl. Dumps are in
// dump.h, records of samples in records.h.
//
// Any thread, no lock held. Where it is said that something is told to the collector, a process that nobody follows
// succeeds too: it has no samples that could be wrong.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_PROFILING_H_
#define HEAPTAP_ALLOCATOR_PROFILING_PROFILING_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace heaptap {

// Begins what the process's configuration asks for. Once, before other threads.
void StartProfiling();

// prof.active. The calling thread follows at once, others with their next slow path (contract.h).
bool IsProfilingActive();
void SetProfilingActive(bool active);

// thread.prof.active of the calling thread.
bool IsThreadActive();
void SetThreadActive(bool active);

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

// prof.reset: all samples so far vanish from later dumps; told to the collector.
void ResetProfile();
// Also sets the process's own sampling interval to 2^lg_interval bytes; larger values than HEAPTAP_MAX_LG_SAMPLE are
// clipped to it. An interval that the collector has set takes precedence.
void ResetProfile(size_t lg_interval);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_PROFILING_H_
