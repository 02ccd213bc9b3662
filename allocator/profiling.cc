// SPDX-License-Identifier: Apache-2.0
#include "profiling.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>

#include "dump.h"
#include "heaptap/contract.h"
#include "probes.h"
#include "process.h"
#include "sample_events.h"
#include "sample_records.h"
#include "sampler.h"
#include "statistics.h"
#include "system.h"
#include "thread.h"

namespace heaptap {
namespace {

constinit std::atomic<bool> thread_active_initially{true};
constinit thread_local char thread_name[HEAPTAP_THREAD_NAME_BYTES];

// What waits on the thread's ready lists was drawn under other terms: the next allocation shall follow the new ones.
void FollowAtOnce() {
  HeapScope heap;
  heap->Flush();
}

bool IsNameCharacter(char c) { return (c > 0x20 && c < 0x7f) || c == ' ' || c == '\t'; }

}  // namespace

void StartProfiling() {
  thread_active_initially.store(ProcessConfiguration().prof_thread_active_init, std::memory_order_relaxed);
  StartRecords();
}

bool IsProfilingActive() { return __atomic_load_n(&::heaptap_control.active, __ATOMIC_RELAXED) != 0; }

void SetProfilingActive(bool active) {
  __atomic_store_n(&::heaptap_control.active, active, __ATOMIC_RELAXED);
  FollowAtOnce();
}

bool IsThreadActive() {
  HeapScope heap;
  return heap->profiled;
}

void SetThreadActive(bool active) {
  HeapScope heap;
  // The late heap is everybody's.
  if (heap->serial == 0) return;
  heap->profiled = active;
  heap->Flush();
}

bool IsThreadActiveInitially() { return thread_active_initially.load(std::memory_order_relaxed); }

void SetThreadActiveInitially(bool active) { thread_active_initially.store(active, std::memory_order_relaxed); }

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
  if (__atomic_load_n(&heaptap_semaphore_thread_name, __ATOMIC_RELAXED) != 0) {
    heaptap_probe_thread_name(thread_name);
  } else {
    IntroduceThreadAgain();
  }
  return 0;
}

void IntroduceThread() {
  if (thread_name[0] != '\0' && !ProcessConfiguration().prof_sys_thread_name) heaptap_probe_thread_name(thread_name);
  IntroduceRecords();
}

uint32_t SamplingRate() {
  uint32_t rate = __atomic_load_n(&::heaptap_control.collector_lg_sample, __ATOMIC_RELAXED);
  if (rate == HEAPTAP_NO_RATE) rate = __atomic_load_n(&::heaptap_control.lg_sample, __ATOMIC_RELAXED);
  return rate < HEAPTAP_MAX_LG_SAMPLE ? rate : HEAPTAP_MAX_LG_SAMPLE;
}

void ResetProfile() {
  AskForReset(SamplingRate());
  FollowAtOnce();
  // The books are new: what they say of threads and records is told again.
  IntroduceAllThreadsAgain();
}

void ResetProfile(size_t lg_sample) {
  const uint32_t rate = lg_sample < HEAPTAP_MAX_LG_SAMPLE ? static_cast<uint32_t>(lg_sample) : HEAPTAP_MAX_LG_SAMPLE;
  __atomic_store_n(&::heaptap_control.lg_sample, rate, __ATOMIC_RELAXED);
  ResetProfile();
}

}  // namespace heaptap
