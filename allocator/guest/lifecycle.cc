// SPDX-License-Identifier: Apache-2.0
//
// What a guest does at the start, the exit and the fork of its process (process/lifecycle.h). Statistics, mallctl and
// the background thread are the host's.
#include "allocator/process/lifecycle.h"

#include "allocator/guest/host.h"
#include "allocator/guest/start.h"
#include "allocator/guest/thread.h"
#include "allocator/platform/libc.h"
#include "allocator/process/process.h"
#include "allocator/profiling/area_request.h"
#include "allocator/profiling/code_tables.h"
#include "allocator/profiling/dump.h"
#include "allocator/profiling/records.h"
#include "allocator/profiling/triggers.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/sampler.h"

namespace heaptap::lifecycle {
namespace {

// stats_interval is an option of the host.
void PrintNothing(const char*) {}

}  // namespace

// jemalloc would write a dump of its own under the same name, and report the same mistakes.
bool IsMallocConfShared() { return host_facts.nallocx != nullptr; }

void Begin() { StartTriggers(PrintNothing); }

bool RegisterExits() {
  const Configuration& configuration = ProcessConfiguration();
  const bool wants_dump = configuration.prof && configuration.prof_final;
  // The handler that is registered last is called first.
  return libc::AtExit(EndPendingFrees) && (!wants_dump || libc::AtExit(DumpAtExit));
}

void Start() {
  SetNewThreadsSampled(ProcessConfiguration().prof_thread_active_init);
  StartRecords();
}

void Started() { AwaitTables(); }

void ResetAfterFork() {
  ResetDumpsAfterFork();
  ResetRecordsAfterFork();
  ResetCodeTablesAfterFork();
  ResetAreaRequestAfterFork();
  ForgetHighWater();
  ResetCountdown();
}

void EnsureStarted() { StartGuest(); }

}  // namespace heaptap::lifecycle
