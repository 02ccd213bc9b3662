// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/events.h"

#include <atomic>

#include "allocator/core/observer.h"
#include "allocator/core/slab.h"
#include "allocator/sampling/listener.h"
#include "allocator/sampling/pending_frees.h"
#include "allocator/sampling/probe_sites.h"
#include "allocator/sampling/probes.h"
#include "allocator/sampling/statistics.h"

namespace heaptap {
namespace {

// Bit of `prepared`: the listener wants another call. `preparation` never counts this far.
constexpr uint64_t kOnceMore = uint64_t{1} << 63;

// The number of the current preparation of all threads.
constinit std::atomic<uint64_t> preparation{1};
// The number of the thread's last preparation, and kOnceMore.
constinit thread_local uint64_t prepared = 0;

constinit std::atomic<uint64_t> last_serial;

}  // namespace

void PrepareThreadAgain() { prepared = 0; }

void CallBeforeNextSample() { prepared |= kOnceMore; }

void PrepareAllThreadsAgain() { preparation.fetch_add(1, std::memory_order_relaxed); }

uint64_t observer::NextSerial() { return last_serial.fetch_add(1, std::memory_order_relaxed) + 1; }

void observer::Allocated(const void* pointer, const Sample& sample, uint64_t weight) {
  const uint64_t current = preparation.load(std::memory_order_relaxed);
  if (HEAPTAP_UNLIKELY(prepared != current)) {
    const bool is_first = (prepared & ~kOnceMore) != current;
    prepared = current;
    listener::PrepareThread(is_first);
  }
  const ThreadFrees pending = PendingFreesOfThread();
  const auto probe = CanUseCallSite() ? heaptap_probe_alloc_by_call : heaptap_probe_alloc;
  probe(pointer, sample.usable, weight, sample.serial, pending.frees, pending.where);
  if (pending.has_any()) ForgetFreesOfThread();
  if (HasSampleStatistics()) CountSampleAllocated(sample.usable, sample.requested);
  listener::AfterSample(pointer, sample.usable, sample.requested);
}

void observer::Freed(const void* pointer, const Sample& sample) {
  listener::BeforeSampleFreed(pointer, sample.usable);
  if (HasSampleStatistics()) CountSampleFreed(sample.usable, sample.requested);
  heaptap_probe_free(pointer);
  ReportFree({reinterpret_cast<uint64_t>(pointer), sample.serial}, sample.usable);
}

void observer::ThreadEnds() { ReportFreesOfThread(); }

}  // namespace heaptap
