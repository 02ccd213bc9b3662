// SPDX-License-Identifier: Apache-2.0
//
// Sampled blocks of the small classes. They live in slabs that no heap owns; each class of an arena has a pool of such
// slabs with its own lock. free compares the owner word with its heap in any case, so it recognises these blocks
// without a test for sampling. The core allocates and frees them (observer.h).
//
// Any thread, any time. Zero-initialised state is valid: empty pools.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_SAMPLED_BLOCKS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_SAMPLED_BLOCKS_H_

#include <stdint.h>

namespace heaptap {

struct Arena;

// Sets whether each block remembers the requested size that TakeBlock was given; if not, SampleOf returns the size of
// the class. Called before the first TakeBlock. REQUIRES: requested sizes are at most kSmallMaximum.
void KeepRequestedSizes(bool wanted);

// The counts of a class since the arena was made.
struct SampledCounts {
  uint64_t allocations;
  uint64_t slabs_made;
};
SampledCounts ReadSampledCounts(Arena& arena, unsigned size_class);

// Gives the blocks that the calling thread keeps back to their slabs, because it ends. REQUIRES: no lock is held.
void ReturnKeptBlocks();

#ifdef HEAPTAP_DEBUG
// Checks all pools (core/check.h). REQUIRES: the caller holds their locks, or is the only thread.
void CheckSampledPools();
#endif

// fork(2).
void LockSampledPools();
void UnlockSampledPools();
void ResetSampledPoolLocks();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_SAMPLED_BLOCKS_H_
