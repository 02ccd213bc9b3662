// SPDX-License-Identifier: Apache-2.0
//
// A small random number generator: SplitMix64, a counter with Weyl's increment and a mixing function. Not for
// cryptography. Not thread safe: each heap has its own generator. Zero-initialised state is valid: seed 0.
#ifndef HEAPTAP_ALLOCATOR_PLATFORM_RANDOM_H_
#define HEAPTAP_ALLOCATOR_PLATFORM_RANDOM_H_

#include <stdint.h>

namespace heaptap {

class Random {
 public:
  // Streams with different numbers are independent enough for sampling.
  void Seed(uint64_t seed, uint64_t stream) { state_ = Mix(seed) ^ Mix(Mix(stream + kIncrement)); }

  uint64_t Next() { return Mix(state_ += kIncrement); }

  // Uniform in (0, 1], a multiple of 2^-53.
  double NextUnit() { return UnitOf(Next()); }

  // A seed for the child of a fork, different from those of its parent, its siblings and its cousins. `forks`: the
  // number of forks of its ancestors so far, this one included.
  static constexpr uint64_t SeedOfChild(uint64_t seed, uint64_t forks) { return Mix(seed ^ Mix(forks * kIncrement)); }

  // The same from the upper 53 of 64 random bits.
  static double UnitOf(uint64_t bits) { return static_cast<double>(static_cast<int64_t>((bits >> 11) + 1)) * 0x1p-53; }

 private:
  static constexpr uint64_t kIncrement = 0x9e3779b97f4a7c15;

  static constexpr uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  uint64_t state_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PLATFORM_RANDOM_H_
