// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/sampler.h"

#include <atomic>

#include "allocator/core/observer.h"
#include "allocator/platform/mathematics.h"
#include "allocator/sampling/events.h"

namespace heaptap {
namespace {

constinit std::atomic<bool> new_threads_are_sampled{true};

double MeanBytes(Rate rate) { return static_cast<double>(uint64_t{1} << rate); }

}  // namespace

bool AreNewThreadsSampled() { return new_threads_are_sampled.load(std::memory_order_relaxed); }

void SetNewThreadsSampled(bool sampled) { new_threads_are_sampled.store(sampled, std::memory_order_relaxed); }

uint64_t SampleWeight(size_t size, Rate rate) {
  if (rate == 0) return size;
  double bytes = static_cast<double>(size);
  return static_cast<uint64_t>(bytes / OneMinusExp(bytes / MeanBytes(rate)) + 0.5);
}

void Sampler::Start(uint64_t seed, uint64_t stream) {
  random_.Seed(seed, stream);
  is_wanted_ = true;
  SetRate(kSamplingOff);
}

void Sampler::Restart(uint64_t seed, uint64_t stream) {
  random_.Seed(seed, stream);
  SetRate(rate_);
}

double Sampler::DrawBytes() { return -Logarithm(random_.NextUnit()) * MeanBytes(rate_); }

void Sampler::Draw(unsigned size_class) {
  if (rate_ == kSamplingOff) return Set(size_class, kNever);
  if (rate_ == 0) return Set(size_class, 1);
  double allocations = DrawBytes() / kClassSize[size_class];
  if (allocations >= static_cast<double>(kNever)) return Set(size_class, kNever);
  uint64_t until = static_cast<uint64_t>(allocations);
  if (until == 0 || static_cast<double>(until) < allocations) until++;
  Set(size_class, until);
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

// --- what the core asks (core/observer.h) ---

namespace {

// Apart, so that the check before it is inlined.
[[gnu::cold, gnu::noinline]] void ChangeRate(Heap* heap, Rate rate) {
  Sampler& sampler = SamplerOf(heap);
  // Whoever listens now need not be the one who listened before.
  if (sampler.rate() == kSamplingOff) PrepareThreadAgain();
  // What is ready goes back first, so that the new rate holds for the next allocation of each class.
  heap->PutBackReady();
  sampler.Follow(rate);
}

}  // namespace

void observer::StartHeap(Heap* heap, uint64_t seed, uint64_t stream) { SamplerOf(heap).Start(seed, stream); }

// Samples are not the parent's. Changes nothing that malloc and free use, since a signal handler that forks may have
// interrupted them: what is ready stays so.
void observer::RestartHeap(Heap* heap, uint64_t seed) {
  Sampler& sampler = SamplerOf(heap);
  sampler.Restart(seed, heap->serial);
  if (sampler.rate() != kSamplingOff) heap->SkipReady();
}

void observer::AdoptHeap(Heap* heap) { SamplerOf(heap).SetWanted(AreNewThreadsSampled()); }

void observer::BeforeAllocation(Heap* heap) {
  const Sampler& sampler = SamplerOf(heap);
  const Rate rate = HEAPTAP_LIKELY(sampler.is_wanted()) ? CurrentRate() : kSamplingOff;
  if (HEAPTAP_UNLIKELY(rate != sampler.rate())) ChangeRate(heap, rate);
}

uint64_t observer::CountdownOver(Heap* heap, unsigned size_class) {
  Sampler& sampler = SamplerOf(heap);
  sampler.Draw(size_class);
  return sampler.Weight(size_class);
}

uint64_t observer::WeighLarge(Heap* heap, size_t size) {
  Sampler& sampler = SamplerOf(heap);
  return sampler.TestLarge(size) ? SampleWeight(size, sampler.rate()) : 0;
}

uint64_t observer::WeighInPlace(Heap* heap, unsigned size_class) {
  Sampler& sampler = SamplerOf(heap);
  return sampler.TestInPlace(kClassSize[size_class]) ? sampler.Weight(size_class) : 0;
}

}  // namespace heaptap
