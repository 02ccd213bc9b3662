// SPDX-License-Identifier: Apache-2.0
//
// Which allocations are samples.
//
// With R = 2^lg mean bytes between samples, an allocation of usable size s is a sample with probability
// p = 1 - exp(-s / R), independently of all others: as if each byte were marked with probability 1/R, and an allocation
// with a marked byte were a sample. lg 0 is taken to mean that every allocation is a sample.
//
// Small classes need no test for each allocation. The number of the next allocation of a class that is a sample follows
// the geometric law with parameter p; it is drawn ahead, ceil(E * R / s) with E exponential of mean 1, and a heap that
// refills its ready list takes at most the blocks before that one (Allowance). The allocation after them finds the list
// empty, takes the slow path that it would have taken sooner or later, and is the sample. The laws of different classes
// and threads are independent, so counting by class changes nothing.
//
// Not thread safe: each heap has one. Call Start before anything else.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_SAMPLER_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_SAMPLER_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/control.h"
#include "allocator/core/countdown.h"
#include "allocator/core/heap.h"
#include "allocator/platform/random.h"
#include "allocator/sampling/probes.h"

namespace heaptap {

// A sampling rate: lg of the mean bytes between samples, or kSamplingOff.
using Rate = uint32_t;
inline constexpr Rate kSamplingOff = UINT32_MAX;

// The rate that holds in this process now, by the control block and the semaphore of otel_memory:alloc. Any thread.
inline Rate CurrentRate() {
  if (__atomic_load_n(&heaptap_semaphore_alloc, __ATOMIC_RELAXED) == 0) return kSamplingOff;
  return control::IsActive() ? control::LgInterval() : kSamplingOff;
}

// prof.thread_active_init: whether threads that begin are sampled. Any thread; true at first.
bool AreNewThreadsSampled();
void SetNewThreadsSampled(bool sampled);

// The bytes that a sampled allocation stands for: size / (1 - exp(-size / R)), rounded to the nearest integer.
uint64_t SampleWeight(size_t size, Rate rate);

class Sampler : public Countdown {
 public:
  // Begins with sampling off and the random stream number `stream` of `seed`.
  void Start(uint64_t seed, uint64_t stream);

  // Begins another random stream at the same rate: the child of a fork must not repeat its parent's. As if no block
  // were ready: see Skip.
  void Restart(uint64_t seed, uint64_t stream);

  // Follows a change of the rate. REQUIRES: no block is ready, if it has changed.
  void Follow(Rate rate) {
    if (rate != rate_) SetRate(rate);
  }

  Rate rate() const { return rate_; }

  // thread.prof.active of the thread that has the heap: false is as if sampling were off.
  bool is_wanted() const { return is_wanted_; }
  void SetWanted(bool wanted) { is_wanted_ = wanted; }

  // What a sample of the class stands for. REQUIRES: sampling is on.
  uint64_t Weight(unsigned size_class) const { return weight_[size_class]; }

  // The allocation at hand was the sample; draws the next. REQUIRES: Allowance(size_class) == 0.
  void Draw(unsigned size_class);

  // Whether an allocation of this usable size is a sample; for blocks that are no slab's.
  bool TestLarge(size_t size);

  // The same for an allocation that stays in its block (realloc): one countdown of bytes for all sizes, since such
  // calls have no slow path to wait for.
  bool TestInPlace(size_t size);

 private:
  void SetRate(Rate rate);
  // The distance to the next marked byte, exponential with mean R. REQUIRES: rate_ != kSamplingOff.
  double DrawBytes();

  Random random_;
  Rate rate_;
  bool is_wanted_;
  double bytes_until_in_place_;
  uint64_t weight_[kSmallClasses];
};

static_assert(sizeof(Sampler) <= observer::kStateBytes);

// The sampler of a heap; for its user.
inline Sampler& SamplerOf(Heap* heap) { return *reinterpret_cast<Sampler*>(heap->observer_state); }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_SAMPLER_H_
