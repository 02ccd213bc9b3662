// SPDX-License-Identifier: Apache-2.0
//
// Sampled blocks of the small classes. They live in slabs that no heap owns, one pool of slabs for each class with a
// lock of its own: so free, which compares the owner word with its heap anyway, finds that they are no ordinary
// blocks, and a free of an ordinary block knows nothing about sampling. The core allocates and frees them (observer.h).
//
// Any thread, any time; zero-initialised state is valid: empty pools.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_SAMPLED_BLOCKS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_SAMPLED_BLOCKS_H_

#include <stdint.h>

namespace heaptap {

// How many blocks of the class have been allocated.
uint64_t SampledAllocations(unsigned size_class);

// fork(2).
void LockSampledPools();
void UnlockSampledPools();
void ResetSampledPoolLocks();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_SAMPLED_BLOCKS_H_
