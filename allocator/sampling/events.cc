// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/events.h"

#include <atomic>

#include "allocator/core/observer.h"
#include "allocator/core/slab.h"
#include "allocator/sampling/listener.h"
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

}  // namespace

void PrepareThreadAgain() { prepared = 0; }

void CallBeforeNextSample() { prepared |= kOnceMore; }

void PrepareAllThreadsAgain() { preparation.fetch_add(1, std::memory_order_relaxed); }

void observer::Allocated(const void* pointer, size_t usable, uint64_t weight, size_t requested) {
  const uint64_t current = preparation.load(std::memory_order_relaxed);
  if (HEAPTAP_UNLIKELY(prepared != current)) {
    const bool is_first = (prepared & ~kOnceMore) != current;
    prepared = current;
    listener::PrepareThread(is_first);
  }
  heaptap_probe_alloc(pointer, usable, weight);
  if (HasSampleStatistics()) CountSampleAllocated(usable, requested);
  listener::AfterSample(pointer, usable, requested);
}

void observer::Freed(const void* pointer, size_t usable, size_t requested) {
  listener::BeforeSampleFreed(pointer, usable);
  if (HasSampleStatistics()) CountSampleFreed(usable, requested);
  heaptap_probe_free(pointer);
}

}  // namespace heaptap
