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
#ifndef HEAPTAP_ALLOCATOR_SAMPLER_H_
#define HEAPTAP_ALLOCATOR_SAMPLER_H_

#include <stddef.h>
#include <stdint.h>

#include "random.h"
#include "size_class.h"

namespace heaptap {

// A sampling rate: lg of the mean bytes between samples, or kSamplingOff.
using Rate = uint32_t;
inline constexpr Rate kSamplingOff = UINT32_MAX;

// The rate that holds in this process now, by the control block and the semaphore of otel_memory:alloc. Any thread.
Rate CurrentRate();

// The bytes that a sampled allocation stands for: size / (1 - exp(-size / R)), rounded to the nearest integer.
uint64_t SampleWeight(size_t size, Rate rate);

class Sampler {
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

  // How many allocations of the class precede the next sample. 0: the allocation at hand is the sample.
  uint64_t Allowance(unsigned size_class) const { return until_sample_[size_class] - 1; }

  // `count` blocks were made ready. REQUIRES: count <= Allowance(size_class).
  void HandOut(unsigned size_class, uint64_t count) { until_sample_[size_class] -= count; }

  // `count` blocks that were made ready have not been allocated, or not by an allocation that counts.
  void TakeBack(unsigned size_class, uint64_t count) { until_sample_[size_class] += count; }

  // `count` blocks are ready that were drawn under other terms, and are no samples. If the sample is to be one of them,
  // the next allocation behind them is it instead: so there are about as many samples as the law says.
  void Skip(unsigned size_class, uint64_t count) {
    until_sample_[size_class] = count < until_sample_[size_class] ? until_sample_[size_class] - count : 1;
  }

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
  double bytes_until_in_place_;
  uint64_t until_sample_[kSmallClasses];  // >= 1; huge if sampling is off
  uint64_t weight_[kSmallClasses];
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLER_H_
