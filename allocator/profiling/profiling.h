// SPDX-License-Identifier: Apache-2.0
//
// The process's control over its own profile: prof.* and thread.prof.* of mallctl. Dumps are in dump.h, records of
// samples in records.h.
//
// Any thread, no lock held. Functions that inform the collector succeed without a collector too: the process has no
// samples then.
#ifndef HEAPTAP_ALLOCATOR_PROFILING_PROFILING_H_
#define HEAPTAP_ALLOCATOR_PROFILING_PROFILING_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

namespace heaptap {

// Starts what the configuration asks for. Called once, before other threads exist.
void StartProfiling();

// prof.active. Takes effect at once for the calling thread, for other threads at their next slow path (contract.h).
bool IsProfilingActive();
void SetProfilingActive(bool active);

// thread.prof.active of the calling thread.
bool IsThreadActive();
void SetThreadActive(bool active);

// thread.prof.name of the calling thread; "" if it has none. With prof_sys_thread_name: the system's name of the
// thread, and SetThreadName must not be called. The text is valid until the thread sets another name or ends.
const char* ThreadName();
// Keeps at most 15 bytes. EINVAL: the name is nullptr, or has a character that is neither graphic nor blank.
int SetThreadName(const char* name);

// Informs the collector of everything that it must know before the thread's next sample, such as the thread's name.
void IntroduceThread();

// prof.gdump: a dump whenever the active memory is larger than ever before.
bool IsHighWaterDumped();
void SetHighWaterDumped(bool dumped);

// prof.reset: informs the collector. Later dumps contain none of the samples so far.
void ResetProfile();
// Also sets the process's own sampling interval to 2^lg_interval bytes; larger values than HEAPTAP_MAX_LG_SAMPLE are
// clipped to it. An interval that the collector has set takes precedence.
void ResetProfile(size_t lg_interval);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROFILING_PROFILING_H_
