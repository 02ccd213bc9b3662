// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/listener.h"

#include <stddef.h>

#include "allocator/profiling/area_request.h"
#include "allocator/profiling/code_tables.h"
#include "allocator/profiling/hooks.h"
#include "allocator/profiling/profiling.h"
#include "allocator/profiling/records.h"
#include "allocator/profiling/triggers.h"

namespace heaptap::listener {

void PrepareThread(bool is_first) {
  if (is_first) IntroduceThread();
  AwaitTablesOfOpened();
}

void AfterSample(const void* pointer, size_t usable, size_t requested) {
  CountLoggedSample();
  void* no_frames = nullptr;
  CallHook(hooks.sample, pointer, requested, &no_frames, 0u, usable);
  CheckDumpInterval();
  AskForAreaIfWorthIt();
}

void BeforeSampleFreed(const void* pointer, size_t usable) { CallHook(hooks.sample_free, pointer, usable); }

}  // namespace heaptap::listener
