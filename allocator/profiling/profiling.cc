// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/profiling.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "allocator/core/control.h"
#include "allocator/core/thread.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"
#include "allocator/profiling/dump.h"
#include "allocator/profiling/records.h"
#include "allocator/sampling/events.h"
#include "allocator/sampling/probes.h"
#include "allocator/sampling/sampler.h"
#include "allocator/sampling/statistics.h"
#include "heaptap/contract.h"

namespace heaptap {
namespace {

constinit thread_local char thread_name[HEAPTAP_THREAD_NAME_BYTES];

// Puts the thread's ready blocks back, so that the new settings apply from its next allocation on.
void FollowAtOnce() {
  HeapScope heap;
  heap->Flush();
}

bool IsNameCharacter(char c) { return (c > 0x20 && c < 0x7f) || c == ' ' || c == '\t'; }

}  // namespace

void StartProfiling() {
  SetNewThreadsSampled(ProcessConfiguration().prof_thread_active_init);
  StartSampleStatistics(ProcessConfiguration().prof_stats);
  StartRecords();
}

bool IsProfilingActive() { return control::IsActive(); }

void SetProfilingActive(bool active) {
  control::SetActive(active);
  FollowAtOnce();
}

bool IsThreadActive() {
  HeapScope heap;
  return SamplerOf(&*heap).is_wanted();
}

void SetThreadActive(bool active) {
  HeapScope heap;
  // All threads without a heap share the fallback heap.
  if (heap->serial == 0) return;
  SamplerOf(&*heap).SetWanted(active);
  heap->Flush();
}

const char* ThreadName() {
  if (ProcessConfiguration().prof_sys_thread_name) {
    SystemCall(SYS_prctl, PR_GET_NAME, reinterpret_cast<long>(thread_name));
  }
  return thread_name;
}

int SetThreadName(const char* name) {
  if (name == nullptr) return EINVAL;
  for (const char* c = name; *c != '\0'; c++) {
    if (!IsNameCharacter(*c)) return EINVAL;
  }
  const size_t length = strnlen(name, sizeof(thread_name) - 1);
  memmove(thread_name, name, length);
  memset(thread_name + length, 0, sizeof(thread_name) - length);
  if (HasListener(heaptap_semaphore_thread_name)) {
    heaptap_probe_thread_name(thread_name);
  } else {
    PrepareThreadAgain();
  }
  return 0;
}

void IntroduceThread() {
  if (thread_name[0] != '\0' && !ProcessConfiguration().prof_sys_thread_name) heaptap_probe_thread_name(thread_name);
  IntroduceRecords();
}

void ResetProfile() {
  AskForReset(control::EffectiveLgInterval());
  FollowAtOnce();
  // The collector has forgotten the names of threads and the requests for records: they are sent again.
  PrepareAllThreadsAgain();
}

void ResetProfile(size_t lg_interval) {
  const bool fits = lg_interval < HEAPTAP_MAX_LG_SAMPLE;
  control::SetOwnLgInterval(fits ? static_cast<uint32_t>(lg_interval) : HEAPTAP_MAX_LG_SAMPLE);
  ResetProfile();
}

}  // namespace heaptap
