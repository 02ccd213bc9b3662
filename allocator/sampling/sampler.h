// SPDX-License-Identifier: Apache-2.0
//
// Which allocations are samples.
//
// With R = 2^lg mean bytes between samples, an allocation of usable size s is a sample with probability
// p = 1 - exp(-s / R), independently of all others: as if each byte were marked with probability 1/R, and an allocation
// with a marked byte were a sample. lg 0 is taken to mean that every allocation is a sample.
//
// Small classes need no test for each allocation. The number of allocations of a class up to the next sample follows
// the geometric law with parameter p. It is drawn in advance, as 1 + floor(E * R / s) with E exponential of mean 1,
// and a heap makes at most the blocks before the sample ready (Allowance). The next allocation finds none, takes the
// slow path, and is the sample. The laws of different classes and threads are independent, so counting by class changes
// nothing.
//
// Not thread safe: each heap has its own sampler. REQUIRES: Start was called before any other method.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_SAMPLER_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_SAMPLER_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/control.h"
#include "allocator/core/countdown.h"
#include "allocator/core/heap.h"
#include "allocator/platform/exponential.h"
#include "allocator/platform/random.h"
#include "allocator/sampling/probes.h"

namespace heaptap {

// The sampling interval: lg (base 2) of the mean bytes between samples, or kSamplingOff.
using LgInterval = uint32_t;
inline constexpr LgInterval kSamplingOff = UINT32_MAX;

// Whether any thread is sampled, from the control block and the semaphore of otel_memory:alloc. Any thread.
inline bool IsSamplingOn() { return HEAPTAP_LIKELY(HasListener(heaptap_semaphore_alloc) && control::IsActive()); }

// The interval in force in this process. Any thread.
inline LgInterval CurrentLgInterval() { return IsSamplingOn() ? control::EffectiveLgInterval() : kSamplingOff; }

// prof.thread_active_init: whether new threads are sampled. Any thread. Initially true.
bool AreNewThreadsSampled();
void SetNewThreadsSampled(bool sampled);

// The weight of a sample, the bytes that it stands for: size / (1 - exp(-size / R)), rounded to the nearest integer.
uint64_t SampleWeight(size_t size, LgInterval lg_interval);

class Sampler : public Countdown {
 public:
  // Starts with sampling off and random stream number `stream` of `seed`.
  void Start(uint64_t seed, uint64_t stream);

  // Switches to another random stream: the child of a fork must not repeat its parent's samples. Countdowns that have
  // begun go on, because they have handed out blocks that are still ready. So the child has the exact law, and only its
  // first sample of each class is where its parent's is.
  void Restart(uint64_t seed, uint64_t stream);

  // Adopts the interval. REQUIRES: no block is ready if the interval differs from the current one.
  void FollowLgInterval(LgInterval lg_interval) {
    if (lg_interval != lg_interval_) SetLgInterval(lg_interval);
  }

  LgInterval lg_interval() const { return lg_interval_; }

  // thread.prof.active of the heap's thread; false has the effect of sampling off.
  bool is_wanted() const { return is_wanted_; }
  void SetWanted(bool wanted) {
    is_wanted_ = wanted;
    noted_ = kNothing;
  }

  // Whether `chosen` is the last interval that was noted, and SetWanted was not called since. A slow path has only one
  // number to compare.
  bool IsNoted(uint64_t chosen) const { return chosen == noted_; }
  void Note(uint64_t chosen) { noted_ = chosen; }

  // The weight of a sample of the class. REQUIRES: sampling is on.
  uint64_t Weight(unsigned size_class) const {
    HEAPTAP_ASSERT(lg_interval_ != kSamplingOff);
    return weight_[size_class];
  }

  // The current allocation is the sample: draws the next one. REQUIRES: Allowance(size_class) == 0.
  void Draw(unsigned size_class) {
    HEAPTAP_ASSERT(Allowance(size_class) == 0);
    Begin(size_class);
  }

  // Whether an allocation of this usable size is a sample. For blocks outside slabs.
  bool TestLarge(size_t size);

  // The same for a realloc that keeps its block: one countdown in bytes for all sizes, since such calls use no ready
  // list that could run out.
  bool TestInPlace(size_t size);

  // The distance to the next marked byte, exponential with mean R. 0 for lg 0, and infinite while sampling is off.
  double DrawBytes() { return DrawExponential(&random_) * mean_bytes_; }

  // Uniform in (0, 1], for the decisions of an allocator that counts bytes itself (guest/decision.h).
  double DrawUnit() { return random_.NextUnit(); }

 private:
  static constexpr uint64_t kNothing = UINT64_MAX;

  void SetLgInterval(LgInterval lg_interval);

  // Begins a countdown of the class.
  void Begin(unsigned size_class) {
    const double allocations = DrawBytes() / static_cast<int32_t>(kClassSize[size_class]);
    const bool is_never = allocations >= static_cast<double>(kNever);
    Set(size_class, HEAPTAP_UNLIKELY(is_never) ? kNever : static_cast<uint64_t>(static_cast<int64_t>(allocations)) + 1);
  }

  Random random_;
  LgInterval lg_interval_;
  bool is_wanted_;
  uint64_t noted_;     // kNothing: SetWanted was called since
  double mean_bytes_;  // R; 0 for lg 0; infinite while sampling is off
  double bytes_until_in_place_;
  uint64_t weight_[kSmallClasses];
};

static_assert(sizeof(Sampler) <= observer::kStateBytes);

// The sampler of a heap. For the thread that uses the heap.
inline Sampler& SamplerOf(Heap* heap) { return *reinterpret_cast<Sampler*>(heap->observer_state); }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_SAMPLER_H_
