// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/statistics.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/size_class.h"

namespace heaptap {
namespace {

struct AtomicSampleStatistics {
  std::atomic<uint64_t> requested;
  std::atomic<uint64_t> count;
};
struct SampleCounts {
  AtomicSampleStatistics allocated;
  AtomicSampleStatistics freed;
};

constinit SampleCounts counts[kClasses]{};

void Add(AtomicSampleStatistics& to, size_t requested) {
  to.requested.fetch_add(requested, std::memory_order_relaxed);
  to.count.fetch_add(1, std::memory_order_relaxed);
}

// Acquire: keeps the loads of a later Read after these.
SampleStatistics Read(const AtomicSampleStatistics& from) {
  return {from.requested.load(std::memory_order_acquire), from.count.load(std::memory_order_acquire)};
}

}  // namespace

bool has_sample_statistics;

void StartSampleStatistics(bool wanted) { has_sample_statistics = wanted; }

void CountSampleAllocated(size_t usable, size_t requested) { Add(counts[ClassNumber(usable)].allocated, requested); }

void CountSampleFreed(size_t usable, size_t requested) { Add(counts[ClassNumber(usable)].freed, requested); }

LiveAndAccumulated ReadSampleStatistics(unsigned size_class) {
  // The frees first, so that the number of live samples is never negative.
  const SampleStatistics freed = Read(counts[size_class].freed);
  const SampleStatistics allocated = Read(counts[size_class].allocated);
  return {{allocated.requested - freed.requested, allocated.count - freed.count}, allocated};
}

}  // namespace heaptap
