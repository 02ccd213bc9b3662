// SPDX-License-Identifier: Apache-2.0
#include "sample_events.h"

#include <atomic>

#include "code_tables.h"
#include "hooks.h"
#include "probes.h"
#include "process.h"
#include "profiling.h"
#include "sample_records.h"
#include "sample_statistics.h"
#include "triggers.h"

namespace heaptap {

constinit Hooks hooks{};
constinit thread_local bool in_hook = false;

namespace {

// Which introduction the thread has made; all are void when the process begins another.
constinit thread_local uint64_t introduced = 0;
constinit std::atomic<uint64_t> introduction{1};

}  // namespace

void IntroduceThreadAgain() { introduced = 0; }

void IntroduceAllThreadsAgain() { introduction.fetch_add(1, std::memory_order_relaxed); }

void SampleAllocated(const void* pointer, size_t usable, uint64_t weight, size_t requested) {
  const uint64_t current = introduction.load(std::memory_order_relaxed);
  if (HEAPTAP_UNLIKELY(introduced != current)) {
    introduced = current;
    IntroduceThread();
  }
  AwaitTablesOfOpened();
  heaptap_probe_alloc(pointer, usable, weight);
  CountLoggedSample();
  if (ProcessConfiguration().prof_stats) CountSampleAllocated(usable, requested);
  void* no_frames = nullptr;
  CallHook(hooks.sample, pointer, requested, &no_frames, 0u, usable);
  CheckDumpInterval();
}

void SampleFreed(const void* pointer, size_t usable, size_t requested) {
  CallHook(hooks.sample_free, pointer, usable);
  if (ProcessConfiguration().prof_stats) CountSampleFreed(usable, requested);
  heaptap_probe_free(pointer);
}

}  // namespace heaptap
