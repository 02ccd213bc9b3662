// SPDX-License-Identifier: Apache-2.0
#include "sampler.h"

#include "mathematics.h"
#include "probes.h"
#include "statistics.h"

namespace heaptap {
namespace {

// More allocations than a process can make; half of the range, so that TakeBack cannot overflow.
constexpr uint64_t kNever = uint64_t{1} << 62;

double MeanBytes(Rate rate) { return static_cast<double>(uint64_t{1} << rate); }

}  // namespace

Rate CurrentRate() {
  if (__atomic_load_n(&heaptap_semaphore_alloc, __ATOMIC_RELAXED) == 0) return kSamplingOff;
  if (__atomic_load_n(&heaptap_control.active, __ATOMIC_RELAXED) == 0) return kSamplingOff;
  Rate rate = __atomic_load_n(&heaptap_control.collector_lg_sample, __ATOMIC_RELAXED);
  if (rate == HEAPTAP_NO_RATE) rate = __atomic_load_n(&heaptap_control.lg_sample, __ATOMIC_RELAXED);
  return rate < HEAPTAP_MAX_LG_SAMPLE ? rate : HEAPTAP_MAX_LG_SAMPLE;
}

uint64_t SampleWeight(size_t size, Rate rate) {
  if (rate == 0) return size;
  double bytes = static_cast<double>(size);
  return static_cast<uint64_t>(bytes / OneMinusExp(bytes / MeanBytes(rate)) + 0.5);
}

void Sampler::Start(uint64_t seed, uint64_t stream) {
  random_.Seed(seed, stream);
  SetRate(kSamplingOff);
}

void Sampler::Restart(uint64_t seed, uint64_t stream) {
  random_.Seed(seed, stream);
  SetRate(rate_);
}

double Sampler::DrawBytes() { return -Logarithm(random_.NextUnit()) * MeanBytes(rate_); }

void Sampler::Draw(unsigned size_class) {
  uint64_t& until = until_sample_[size_class];
  if (rate_ == kSamplingOff) {
    until = kNever;
    return;
  }
  if (rate_ == 0) {
    until = 1;
    return;
  }
  double allocations = DrawBytes() / kClassSize[size_class];
  if (allocations >= static_cast<double>(kNever)) {
    until = kNever;
    return;
  }
  until = static_cast<uint64_t>(allocations);
  if (until == 0 || static_cast<double>(until) < allocations) until++;
}

bool Sampler::TestLarge(size_t size) {
  if (rate_ == kSamplingOff) return false;
  return rate_ == 0 || DrawBytes() < static_cast<double>(size);
}

bool Sampler::TestInPlace(size_t size) {
  if (rate_ == kSamplingOff) return false;
  if (rate_ == 0) return true;
  bytes_until_in_place_ -= static_cast<double>(size);
  if (bytes_until_in_place_ > 0) return false;
  bytes_until_in_place_ = DrawBytes();
  return true;
}

void Sampler::SetRate(Rate rate) {
  rate_ = rate;
  for (unsigned c = 0; c < kSmallClasses; c++) Draw(c);
  if (rate == kSamplingOff) return;
  for (unsigned c = 0; c < kSmallClasses; c++) weight_[c] = SampleWeight(kClassSize[c], rate);
  bytes_until_in_place_ = DrawBytes();
}

}  // namespace heaptap
