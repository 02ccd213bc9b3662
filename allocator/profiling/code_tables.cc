// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/code_tables.h"

#include <link.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include <atomic>

#include "allocator/core/control.h"
#include "allocator/platform/clock.h"
#include "allocator/platform/system.h"
#include "allocator/process/collector.h"
#include "allocator/sampling/areas.h"
#include "allocator/sampling/counting.h"
#include "allocator/sampling/events.h"
#include "allocator/sampling/probes.h"

// Defined by the dynamic linker, which static programs do not have.
#pragma weak _r_debug

namespace heaptap {
namespace {

// After a request that was not answered, the process makes none for this time, in milliseconds.
constexpr uint64_t kPauseAfterTimeout = 60000;

// Nanoseconds between two checks for the answer. Most answers take less than a millisecond.
constexpr long kFirstPause = 50'000;
constexpr long kLongestPause = 1'000'000;

constinit std::atomic<uint64_t> paused_until;             // Milliseconds()
constinit std::atomic<unsigned long long> objects_known;  // dlpi_adds at the latest request
constinit std::atomic<bool> is_forked_child;

// Whether every allocation is a sample and a collector records the process.
bool IsExact() {
  return control::EffectiveLgInterval() == 0 && control::CollectorPid() != 0 && HasListener(heaptap_semaphore_dump);
}

// How many objects the dynamic linker has loaded and unloaded so far.
struct ObjectCounts {
  unsigned long long loaded = 0;
  unsigned long long unloaded = 0;
};
ObjectCounts CountObjects() {
  ObjectCounts counts;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        *static_cast<ObjectCounts*>(result) = {info->dlpi_adds, info->dlpi_subs};
        return 1;
      },
      &counts);
  return counts;
}

constinit std::atomic<unsigned long long> objects_unloaded;  // at the latest look

// Another library may get the addresses of one that was unloaded.
void ForgetStacksOfUnloaded() {
  if (!areas::HasAny()) return;
  const unsigned long long unloaded = CountObjects().unloaded;
  if (objects_unloaded.exchange(unloaded, std::memory_order_relaxed) != unloaded) counting::ForgetStacks();
}

// An address in the frame of dlopen's caller while the thread may be in dlopen, else nullptr.
constinit thread_local const char* opening_frame = nullptr;

}  // namespace

void AwaitTables() {
  if (!IsExact() || Milliseconds() < paused_until.load(std::memory_order_relaxed)) return;
  heaptap_dump_request request{};
  request.kind = HEAPTAP_ASK_TABLES;
  const uint32_t asked = control::BeginTableRequest();
  request.argument = asked;
  heaptap_probe_dump(&request);
  control::CountWait(&heaptap_waits::table_answers);
  const uint64_t deadline = Milliseconds() + HEAPTAP_TABLES_TIMEOUT_MILLISECONDS;
  for (timespec pause = {0, kFirstPause}; !control::IsTableRequestAnswered(asked);) {
    if (!IsExact() || HasCollectorEnded()) return;
    const uint64_t now = Milliseconds();
    if (now >= deadline) {
      paused_until.store(now + kPauseAfterTimeout, std::memory_order_relaxed);
      return;
    }
    SystemCall(SYS_nanosleep, reinterpret_cast<long>(&pause), 0);
    if (pause.tv_nsec < kLongestPause) pause.tv_nsec *= 2;
  }
}

void NoteOpening(const void* frame) {
  const char* address = static_cast<const char*>(frame);
  // A library that is being opened may open others. The outermost call counts.
  if (opening_frame == nullptr || address > opening_frame) opening_frame = address;
  ForgetStacksOfUnloaded();
  CallBeforeNextSample();
}

void AwaitTablesOfOpened() {
  if (opening_frame == nullptr) return;
  CallBeforeNextSample();
  // While the linker changes its list, it allocates but does not run new code yet.
  if (&_r_debug != nullptr && _r_debug.r_state != r_debug::RT_CONSISTENT) return;
  // Stacks grow downwards: if the current frame is above the frame of dlopen's caller, dlopen has returned, and this is
  // the last check.
  const char* here = static_cast<const char*>(__builtin_frame_address(0));
  if (here > opening_frame) opening_frame = nullptr;
  if (is_forked_child.load(std::memory_order_relaxed) || !IsExact()) return;
  const unsigned long long loaded = CountObjects().loaded;
  const bool is_known = objects_known.exchange(loaded, std::memory_order_relaxed) == loaded;
  // Another thread may have requested the tables already.
  if (!is_known || !control::IsTableRequestAnswered(control::LatestTableRequest())) AwaitTables();
}

void ResetCodeTablesAfterFork() { is_forked_child.store(true, std::memory_order_relaxed); }

}  // namespace heaptap
