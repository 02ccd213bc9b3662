// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/sampler.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/observer.h"
#include "allocator/platform/mathematics.h"
#include "allocator/sampling/events.h"

namespace heaptap {
namespace {

constinit std::atomic<bool> new_threads_are_sampled{true};

double MeanBytes(LgInterval lg_interval) {
  if (lg_interval == kSamplingOff) return __builtin_inf();
  return lg_interval == 0 ? 0 : static_cast<double>(uint64_t{1} << lg_interval);
}

}  // namespace

bool AreNewThreadsSampled() { return new_threads_are_sampled.load(std::memory_order_relaxed); }

void SetNewThreadsSampled(bool sampled) { new_threads_are_sampled.store(sampled, std::memory_order_relaxed); }

uint64_t SampleWeight(size_t size, LgInterval lg_interval) {
  if (lg_interval == 0) return size;
  double bytes = static_cast<double>(size);
  return static_cast<uint64_t>(bytes / OneMinusExp(bytes / MeanBytes(lg_interval)) + 0.5);
}

void Sampler::Start(uint64_t seed, uint64_t stream) {
  random_.Seed(seed, stream);
  SetWanted(true);
  SetLgInterval(kSamplingOff);
}

void Sampler::Restart(uint64_t seed, uint64_t stream) { random_.Seed(seed, stream); }

bool Sampler::TestLarge(size_t size) { return lg_interval_ != kSamplingOff && DrawBytes() < static_cast<double>(size); }

bool Sampler::TestInPlace(size_t size) {
  bytes_until_in_place_ -= static_cast<double>(size);
  if (bytes_until_in_place_ > 0) return false;
  bytes_until_in_place_ = DrawBytes();
  return true;
}

void Sampler::SetLgInterval(LgInterval lg_interval) {
  lg_interval_ = lg_interval;
  mean_bytes_ = MeanBytes(lg_interval);
  bytes_until_in_place_ = DrawBytes();
  for (unsigned c = 0; c < kSmallClasses; c++) Begin(c);
  if (lg_interval == kSamplingOff) return;
  for (unsigned c = 0; c < kSmallClasses; c++) weight_[c] = SampleWeight(kClassSize[c], lg_interval);
}

// --- the core's observer (core/observer.h) ---

namespace {

// `chosen`: control::ChosenLgInterval, or kSamplingOff. Out of line, so that the check before the call is inlined.
[[gnu::cold, gnu::noinline]] void ChangeLgInterval(Heap* heap, uint64_t chosen) {
  Sampler& sampler = SamplerOf(heap);
  sampler.Note(chosen);
  const bool is_on = chosen != kSamplingOff && sampler.is_wanted();
  const LgInterval lg_interval = is_on ? control::EffectiveLgInterval(static_cast<uint32_t>(chosen)) : kSamplingOff;
  if (lg_interval == sampler.lg_interval()) return;
  // The listener may not be the one from before sampling was off.
  if (sampler.lg_interval() == kSamplingOff) PrepareThreadAgain();
  // Ready blocks go back first, so that the new interval applies to the next allocation of each class.
  heap->PutBackReady();
  sampler.FollowLgInterval(lg_interval);
}

// A number that no other heap has.
uint64_t StreamOf(const Heap& heap) {
  constexpr unsigned kSerialBits = 48;
  return heap.serial | uint64_t{heap.arena} << kSerialBits;
}

}  // namespace

void observer::StartHeap(Heap* heap, uint64_t seed) { SamplerOf(heap).Start(seed, StreamOf(*heap)); }

// The child must not repeat its parent's samples. Ready blocks stay ready: a signal handler that forks may have
// interrupted malloc or free, so nothing that they use may change.
void observer::RestartHeap(Heap* heap, uint64_t seed) { SamplerOf(heap).Restart(seed, StreamOf(*heap)); }

void observer::AdoptHeap(Heap* heap) { SamplerOf(heap).SetWanted(AreNewThreadsSampled()); }

void observer::MoveThread(Heap* from, Heap* to) { SamplerOf(to).SetWanted(SamplerOf(from).is_wanted()); }

void observer::BeforeAllocation(Heap* heap) {
  const uint64_t chosen = IsSamplingOn() ? control::ChosenLgInterval() : kSamplingOff;
  if (HEAPTAP_UNLIKELY(!SamplerOf(heap).IsNoted(chosen))) ChangeLgInterval(heap, chosen);
}

uint64_t observer::CountdownOver(Heap* heap, unsigned size_class) {
  Sampler& sampler = SamplerOf(heap);
  sampler.Draw(size_class);
  return sampler.Weight(size_class);
}

uint64_t observer::WeighLarge(Heap* heap, size_t size) {
  Sampler& sampler = SamplerOf(heap);
  return sampler.TestLarge(size) ? SampleWeight(size, sampler.lg_interval()) : 0;
}

uint64_t observer::WeighInPlace(Heap* heap, unsigned size_class) {
  Sampler& sampler = SamplerOf(heap);
  return sampler.TestInPlace(kClassSize[size_class]) ? sampler.Weight(size_class) : 0;
}

}  // namespace heaptap
