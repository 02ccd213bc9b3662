// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/decision.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/core/observer.h"
#include "allocator/core/thread.h"
#include "allocator/guest/start.h"
#include "allocator/guest/thread.h"
#include "allocator/guest/usable_size.h"
#include "allocator/platform/charge.h"
#include "allocator/platform/mathematics.h"
#include "allocator/sampling/sampler.h"

namespace heaptap {

namespace {

// A countdown that never ends: no process allocates this much.
constexpr uint64_t kNoEnd = uint64_t{1} << 62;

void BeginStride(uint64_t countdown) {
  const uint64_t left = countdown < kStride ? countdown : kStride;
  guest_thread.left = guest_thread.begin = left;
  guest_thread.more = countdown - left;
}

uint64_t DrawCountdown(Sampler& sampler) {
  if (sampler.lg_interval() == kSamplingOff) return kNoEnd;
  if (sampler.lg_interval() == 0) return 0;
  return CountdownTo(sampler.DrawBytes());
}

// The weight of a candidate as a sample; 0: it is not a sample.
uint64_t WeighCandidate(Sampler& sampler, uint64_t charge, size_t usable) {
  const LgInterval lg = sampler.lg_interval();
  if (lg == 0) return usable;
  const double mean = static_cast<double>(uint64_t{1} << lg);
  const double charged = OneMinusExp(static_cast<double>(charge) / mean);
  const double size = static_cast<double>(usable);
  if (usable > charge) return static_cast<uint64_t>(size / charged + 0.5);
  return sampler.DrawUnit() * charged <= OneMinusExp(size / mean) ? SampleWeight(usable, lg) : 0;
}

// The countdown has ended within the allocation, or the interval has changed.
[[gnu::cold, gnu::noinline]] Decision DecideSlowly(size_t size, size_t alignment, LgInterval interval) {
  const bool is_new = guest_thread.interval != interval + 1;
  guest_thread.interval = interval + 1;
  // Allocations from here on are made for this library, and pass unsampled.
  BeginStride(kStride);
  const int saved = errno;
  const size_t usable = interval != kSamplingOff ? HostUsableSize(size, alignment) : 0;
  errno = saved;
  HeapScope heap;
  observer::BeforeAllocation(&*heap);
  Sampler& sampler = SamplerOf(&*heap);
  const uint64_t charge = ChargeOf(ChargedSize(size, alignment));
  uint64_t countdown = DrawCountdown(sampler);
  if (sampler.lg_interval() == kSamplingOff) {
    BeginStride(countdown);
    return {};
  }
  if (is_new) {
    // The allocation is the first of the new interval.
    if (charge <= countdown) {
      BeginStride(countdown - charge);
      return {};
    }
    countdown = DrawCountdown(sampler);
  }
  BeginStride(countdown);
  // 0: the host would refuse the block.
  return usable != 0 ? Decision{WeighCandidate(sampler, charge, usable), usable} : Decision{};
}

}  // namespace

Decision Decide(size_t size, size_t alignment) {
  GuestThread& thread = guest_thread;
  // Half of the charge is about as much as was allocated. The triggers of dumps count the allocated bytes.
  thread_counters.allocated += (thread.begin - thread.left) / 2;
  thread.begin = thread.left;
  const LgInterval interval = IsGuestActive() ? CurrentLgInterval() : kSamplingOff;
  if (HEAPTAP_UNLIKELY(thread.interval != interval + 1)) return DecideSlowly(size, alignment, interval);
  if (interval == kSamplingOff) {
    BeginStride(kStride);
    return {};
  }
  const uint64_t missing = uint64_t{0} - thread.left;
  if (missing > thread.more) return DecideSlowly(size, alignment, interval);
  BeginStride(thread.more - missing);
  return {};
}

}  // namespace heaptap
