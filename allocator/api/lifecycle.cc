// SPDX-License-Identifier: Apache-2.0
#include "allocator/process/lifecycle.h"

#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/jemalloc/stats/print.h"
#include "allocator/platform/libc.h"
#include "allocator/process/process.h"
#include "allocator/profiling/area_request.h"
#include "allocator/profiling/code_tables.h"
#include "allocator/profiling/dump.h"
#include "allocator/profiling/profiling.h"
#include "allocator/profiling/records.h"
#include "allocator/profiling/triggers.h"
#include "allocator/sampling/counting.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/sampled_blocks.h"

namespace heaptap::lifecycle {

bool IsMallocConfShared() { return false; }

void Begin() {
  // Before the first sample: all slabs of samples have the same notes.
  KeepRequestedSizes(ProcessConfiguration().prof_stats);
  StartSnapshots();
  StartTriggers(PrintStatistics);
}

bool RegisterExits() {
  const Configuration& configuration = ProcessConfiguration();
  const bool wants_dump = configuration.prof && configuration.prof_final;
  // The handler that is registered last is called first.
  return libc::AtExit(EndPendingFrees) && (!configuration.stats_print || libc::AtExit(PrintStatisticsAtExit)) &&
         (!wants_dump || libc::AtExit(DumpAtExit));
}

void Start() {
  StartProfiling();
  if (ProcessConfiguration().verify_counts) counting::StartVerifying();
}

void Started() { AwaitTables(); }

void ResetAfterFork() {
  ResetDumpsAfterFork();
  ResetSnapshotsAfterFork();
  ResetRecordsAfterFork();
  ResetArenaNamesAfterFork();
  ResetCodeTablesAfterFork();
  ResetAreaRequestAfterFork();
  ForgetHighWater();
}

void EnsureStarted() { StartProcess(); }

}  // namespace heaptap::lifecycle

namespace {

__attribute__((constructor)) void Construct() { heaptap::StartLibrary(); }

}  // namespace
