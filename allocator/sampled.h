// SPDX-License-Identifier: Apache-2.0
//
// Sampled blocks of the small classes. They live in slabs that no heap owns, one pool of slabs for each class with a
// lock of its own: so free, which compares the owner word with its heap anyway, finds that they are no ordinary
// blocks, and a free of an ordinary block knows nothing about sampling.
//
// Any thread, any time; zero-initialised state is valid: empty pools.
#ifndef HEAPTAP_ALLOCATOR_SAMPLED_H_
#define HEAPTAP_ALLOCATOR_SAMPLED_H_

#include "slab.h"

namespace heaptap {

// `requested`: the size that the program asked for. nullptr: out of memory.
void* TakeSampledBlock(unsigned size_class, size_t requested);

// What TakeSampledBlock was told; the usable size unless prof_stats wants to know. REQUIRES: as for ReturnSampledBlock.
size_t RequestedSize(const Slab* slab, const Block* block);

// REQUIRES: `block` came from TakeSampledBlock, `slab` is its slab, and the probe has fired.
void ReturnSampledBlock(Slab* slab, Block* block);

// How many TakeSampledBlock has returned.
uint64_t SampledAllocations(unsigned size_class);

// Releases the empty slabs that the pools keep.
void TrimSampledPools();

// fork(2).
void LockSampledPools();
void UnlockSampledPools();
void ResetSampledPoolLocks();

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLED_H_
