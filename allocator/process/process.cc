// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/process.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include <atomic>

#include "allocator/core/check.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/options.h"
#include "allocator/core/thread.h"
#include "allocator/core/units.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/libc.h"
#include "allocator/platform/mutex.h"
#include "allocator/platform/system.h"
#include "allocator/process/background_thread.h"
#include "allocator/process/collector.h"
#include "allocator/process/lifecycle.h"
#include "allocator/process/option_sources.h"
#include "allocator/sampling/counting.h"
#include "allocator/sampling/events.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/probe_sites.h"
#include "allocator/sampling/probes.h"
#include "allocator/sampling/sampled_blocks.h"
#include "allocator/sampling/told_rate.h"

extern "C" {
// glibc's lock of the list of all streams, which glibc's fork takes. Weak: not every libc has it.
void _IO_list_lock() __attribute__((weak));
void _IO_list_unlock() __attribute__((weak));
void _IO_list_resetlock() __attribute__((weak));
}

namespace heaptap {
namespace {

constinit Mutex start_mutex{LockRank::kStart};
constinit std::atomic<bool> started;
constinit Configuration configuration;

void ReadOptions() {
  const auto read = lifecycle::IsMallocConfShared() ? ReadSharedMallocConf : ReadMallocConf;
  read(ReadOptionSources(), &configuration);
  const char* text = EnvironmentVariable(HEAPTAP_CONF_VARIABLE);
  if (text != nullptr) ReadHeaptapConf(text, &configuration);
  // Without a prefix there are no automatic dumps. The user chooses the folder, so an automatic dump would put a file
  // of the program's owner wherever the user wants.
  if (HasMoreRightsThanItsUser()) configuration.prefix[0] = '\0';
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

void PublishControl() {
  control::InitialValues values{};
  values.pid = ProcessId();
  values.options = Options();
  values.is_active = configuration.prof_active;
  values.lg_interval = static_cast<uint32_t>(configuration.lg_sample);
  values.collector_lg_interval = configuration.collector_lg_sample;
  if (values.collector_lg_interval == HEAPTAP_NO_RATE && configuration.collector_pid == 0) {
    values.collector_lg_interval = FollowToldRate();
  }
  values.collector_pid = configuration.collector_pid;
  values.collector_follows =
      HEAPTAP_COLLECTOR_FOLLOWS | (configuration.collector_gives_areas ? HEAPTAP_COLLECTOR_GIVES_AREAS : 0);
  values.max_frames = configuration.prof_bt_max;
  values.text_begin = heaptap_text_begin;
  values.text_end = heaptap_text_end;
  values.alloc_semaphore = &heaptap_semaphore_alloc;
  control::Publish(values);
}

// A child that is not recorded inherits its parent's raised semaphores. It must not wait for a collector that does not
// record it.
void LeaveCollectorAfterFork() {
  if (control::CollectorPid() == 0 || control::DoesCollectorFollow()) return;
  control::ForgetCollector();
  DistrustSemaphores();
}

constinit uint64_t forks;
bool locked_for_fork;  // under the locks of BeforeFork

// Debug builds: checks all heaps, pools and units that the calling thread may read. REQUIRES: it holds the locks of
// BeforeFork, or is the only thread.
void CheckAroundFork() {
#ifdef HEAPTAP_DEBUG
  // A signal handler may have interrupted this thread while it changed what a lock protects.
  if (!locked_for_fork && Mutex::HoldsAny()) return;
  // A signal handler that forks may have interrupted Free.
  const uint32_t slack = check_slack.exchange(1, std::memory_order_relaxed);
  CheckHeaps();
  CheckSampledPools();
  UnitSums sums{};
  CheckLockedUnits(&sums);
  check_slack.store(slack, std::memory_order_relaxed);
#endif
}

// Takes all locks that a thread may hold while it allocates, in lock order. libc's lock comes first: a thread that
// flushes all streams holds it while it waits for a thread that reads a line and allocates.
//
// With one thread no lock is needed, and taking one could deadlock: a signal handler that forks may have interrupted
// this thread in an allocation or in another fork, while it held these locks.
void BeforeFork() {
  ReportFreesOfThread();
  if (libc::IsSingleThreaded()) {
    forks++;
    return CheckAroundFork();
  }
  if (_IO_list_lock != nullptr) _IO_list_lock();
  LockHeaps();
  LockSampledPools();
  LockUnits();
  // Under the locks, so that two threads that fork at once never have the same number.
  forks++;
  locked_for_fork = true;
  CheckAroundFork();
}

void AfterForkInParent() {
  CheckAroundFork();
  if (!locked_for_fork) return;
  locked_for_fork = false;
  UnlockUnits();
  UnlockSampledPools();
  UnlockHeaps();
  if (_IO_list_unlock != nullptr) _IO_list_unlock();
}

void ResetLocksInChild() {
  if (!locked_for_fork) return;
  locked_for_fork = false;
  ResetUnitsLocks();
  ResetSampledPoolLocks();
  ResetHeapLocks();
  if (_IO_list_resetlock != nullptr) _IO_list_resetlock();
}

void AfterForkInChild() {
  ResetLocksInChild();
  ForgetBackgroundThread();
  ResetHeapsAfterFork(forks);
  CheckAroundFork();
  ForgetFreesAfterFork();
  counting::ForgetAfterFork();
  BeOwnProcess();
  lifecycle::ResetAfterFork();
  PrepareAllThreadsAgain();
  LeaveCollectorAfterFork();
  control::SetPid(ProcessId());
  heaptap_probe_start(&::heaptap_control);
}

}  // namespace

void StartProcess() {
  // Acquire: the thread sees all that the start has written.
  if (started.load(std::memory_order_acquire)) return;
  {
    MutexLock lock(start_mutex);
    if (started.load(std::memory_order_relaxed)) return;
    StartClock();
    ReadOptions();
    SetCoreOptions(CoreOptionsOf(configuration));
    PublishControl();
    StartThreads(Seed());
    lifecycle::Begin();
    // Release: pairs with the load above.
    started.store(true, std::memory_order_release);
  }
  // libc may allocate from here on, with the process already started.
  int saved = errno;
  libc::AtFork(BeforeFork, AfterForkInParent, AfterForkInChild);
  if (!lifecycle::RegisterExits()) {
    Message message;
    message << "<jemalloc>: Error in atexit()\n";
    message.Print();
  }
  PrepareThreadExits();
  lifecycle::Start();
  errno = saved;
  heaptap_probe_start(&::heaptap_control);
  lifecycle::Started();
}

void observer::BeforeUse() { StartProcess(); }

const Configuration& ProcessConfiguration() {
  HEAPTAP_ASSERT(started.load(std::memory_order_acquire) || start_mutex.IsMine());
  return configuration;
}

bool HasOptions() {
  StartProcess();
  for (size_t source = 0; source < kOptionSources; source++) {
    if (OptionText(static_cast<OptionSource>(source)) != nullptr) return true;
  }
  return false;
}

void StartLibrary() {
  StartProcess();
  // The thread starts no earlier, because libc is ready for threads only now.
  if (!configuration.background_thread || StartBackgroundThread()) return;
  Message message;
  message << "<heaptap>: background_thread:true: the system refuses a thread\n";
  message.Print();
}

}  // namespace heaptap
