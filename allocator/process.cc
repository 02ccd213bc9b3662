// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "code_tables.h"
#include "dump.h"
#include "fill.h"
#include "maintenance.h"
#include "mallctl.h"
#include "mutex.h"
#include "option_sources.h"
#include "probes.h"
#include "profiling.h"
#include "sample_events.h"
#include "sample_records.h"
#include "sampled.h"
#include "snapshot.h"
#include "statistics.h"
#include "statistics_print.h"
#include "system.h"
#include "thread.h"
#include "triggers.h"
#include "units.h"

extern "C" {
// The bounds of the allocator's code, from text.ld. Weak: tests that link the objects one by one do without them.
extern const char heaptap_text_begin[] __attribute__((weak, visibility("hidden")));
extern const char heaptap_text_end[] __attribute__((weak, visibility("hidden")));

struct heaptap_control heaptap_control;
}

namespace heaptap {
namespace {

constinit Mutex start_mutex;
constinit std::atomic<bool> started;
constinit Configuration configuration;

void ReadOptions() {
  ReadMallocConf(ReadOptionSources(), &configuration);
  const char* text = EnvironmentVariable(HEAPTAP_CONF_VARIABLE);
  if (text != nullptr) ReadHeaptapConf(text, &configuration);
  SetDirtyDecay(configuration.dirty_decay_ms);
}

uint64_t Seed() {
  if (configuration.has_seed) return configuration.seed;
  uint64_t seed = ProcessId() + Milliseconds();
  const void* random = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (random != nullptr) memcpy(&seed, random, sizeof(seed));
  return seed;
}

uint32_t Options() {
  return (configuration.prof ? HEAPTAP_OPTION_PROF : 0) | (configuration.prof_active ? HEAPTAP_OPTION_PROF_ACTIVE : 0) |
         (configuration.prof_leak ? HEAPTAP_OPTION_PROF_LEAK : 0) |
         (configuration.prof_final ? HEAPTAP_OPTION_PROF_FINAL : 0) |
         (configuration.prof_unbias ? 0 : HEAPTAP_OPTION_PROF_RAW);
}

void FillControl() {
  struct heaptap_control& control = ::heaptap_control;
  control.version = HEAPTAP_CONTROL_VERSION;
  control.size = sizeof(control);
  control.pid = ProcessId();
  control.options = Options();
  control.active = configuration.prof_active;
  control.lg_sample = static_cast<uint32_t>(configuration.lg_sample);
  control.collector_lg_sample = configuration.collector_lg_sample;
  control.collector_pid = configuration.collector_pid;
  control.collector_follows = configuration.collector_pid != 0;
  control.text_begin = reinterpret_cast<uint64_t>(heaptap_text_begin);
  control.text_end = reinterpret_cast<uint64_t>(heaptap_text_end);
  control.max_frames = configuration.prof_bt_max;
  control.alloc_semaphore = reinterpret_cast<uint64_t>(&heaptap_semaphore_alloc);
  // Last: who reads the magic number finds the rest.
  __atomic_store_n(&control.magic, HEAPTAP_CONTROL_MAGIC, __ATOMIC_RELEASE);
}

// A child that is not recorded has the parent's raised semaphores all the same: it must not wait for a collector that
// does not hear it.
void LeaveCollectorAfterFork() {
  struct heaptap_control& control = ::heaptap_control;
  if (__atomic_load_n(&control.collector_pid, __ATOMIC_RELAXED) == 0) return;
  if (__atomic_load_n(&control.collector_follows, __ATOMIC_RELAXED) != 0) return;
  __atomic_store_n(&control.collector_pid, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&control.collector_lg_sample, HEAPTAP_NO_RATE, __ATOMIC_RELAXED);
  DistrustSemaphores();
}

// All locks that a thread may hold while it allocates, in the order in which they are taken.
void BeforeFork() {
  LockHeaps();
  LockSampledPools();
  LockUnits();
}

void AfterForkInParent() {
  UnlockUnits();
  UnlockSampledPools();
  UnlockHeaps();
}

void AfterForkInChild() {
  ResetUnitsLocks();
  ResetSampledPoolLocks();
  ResetHeapsAfterFork();
  ResetDumpsAfterFork();
  ResetSnapshotsAfterFork();
  ResetRecordsAfterFork();
  ResetArenaNameAfterFork();
  ResetCodeTablesAfterFork();
  ForgetHighWater();
  IntroduceAllThreadsAgain();
  LeaveCollectorAfterFork();
  __atomic_store_n(&::heaptap_control.pid, ProcessId(), __ATOMIC_RELAXED);
  heaptap_probe_start(&::heaptap_control);
}

}  // namespace

void StartProcess() {
  if (started.load(std::memory_order_acquire)) return;
  {
    MutexLock lock(start_mutex);
    if (started.load(std::memory_order_relaxed)) return;
    ReadOptions();
    StartFill(configuration);
    FillControl();
    StartThreads(Seed());
    StartSnapshots();
    StartTriggers();
    started.store(true, std::memory_order_release);
  }
  // libc may allocate from here on: that finds the process started.
  int saved = errno;
  pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
  const bool wants_dump = configuration.prof && configuration.prof_final;
  // The last to be registered is called first.
  if ((configuration.stats_print && atexit(PrintStatisticsAtExit) != 0) || (wants_dump && atexit(DumpAtExit) != 0)) {
    Message message;
    message << "<jemalloc>: Error in atexit()\n";
    message.Print();
  }
  StartProfiling();
  errno = saved;
  heaptap_probe_start(&::heaptap_control);
  AwaitTables();
}

const Configuration& ProcessConfiguration() { return configuration; }

bool HasOptions() {
  StartProcess();
  for (size_t source = 0; source < kOptionSources; source++) {
    if (OptionText(static_cast<OptionSource>(source)) != nullptr) return true;
  }
  return false;
}

namespace {

// A process that never allocates has a control block too.
__attribute__((constructor)) void StartLibrary() { StartProcess(); }

}  // namespace
}  // namespace heaptap
