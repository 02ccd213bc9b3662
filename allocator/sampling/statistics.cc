// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/statistics.h"

#include "allocator/core/size_class.h"

namespace heaptap {
namespace {

struct Counts {
  SampleStatistics allocated;
  SampleStatistics freed;
};

Counts counts[kClasses];
bool is_wanted;

void Add(SampleStatistics& to, size_t requested) {
  __atomic_fetch_add(&to.requested, requested, __ATOMIC_RELAXED);
  __atomic_fetch_add(&to.count, 1, __ATOMIC_RELAXED);
}

SampleStatistics Read(const SampleStatistics& from) {
  return {__atomic_load_n(&from.requested, __ATOMIC_RELAXED), __atomic_load_n(&from.count, __ATOMIC_RELAXED)};
}

}  // namespace

void StartSampleStatistics(bool wanted) { is_wanted = wanted; }

bool HasSampleStatistics() { return is_wanted; }

void CountSampleAllocated(size_t usable, size_t requested) { Add(counts[ClassNumber(usable)].allocated, requested); }

void CountSampleFreed(size_t usable, size_t requested) { Add(counts[ClassNumber(usable)].freed, requested); }

LiveAndAccumulated ReadSampleStatistics(unsigned size_class) {
  // The frees first: what is live must not be negative.
  const SampleStatistics freed = Read(counts[size_class].freed);
  const SampleStatistics allocated = Read(counts[size_class].allocated);
  return {{allocated.requested - freed.requested, allocated.count - freed.count}, allocated};
}

}  // namespace heaptap
