// SPDX-License-Identifier: Apache-2.0
//
// Filling of memory, for finding uses of memory that was never written or is free already: junk and zero of
// MALLOC_CONF.
//
// The fast paths of malloc and free fill nothing and do not ask whether they should. While anything is filled, ready
// lists stay empty (Heap::Take) and the owner words of slabs carry kSlowBit, so that every call takes its slow path,
// which does ask. The sampler sees the same allocations as always. abort_invalid_free goes the same way
// (invalid_free.h).
#ifndef HEAPTAP_ALLOCATOR_FILL_H_
#define HEAPTAP_ALLOCATOR_FILL_H_

#include <stddef.h>
#include <stdint.h>

#include "configuration.h"

namespace heaptap {

// What memory is filled with; jemalloc's values.
inline constexpr unsigned char kAllocationJunk = 0xa5;
inline constexpr unsigned char kFreeJunk = 0x5a;

enum class FillOnAllocation : uint8_t { kNothing, kZero, kJunk };

struct FillOptions {
  FillOnAllocation on_allocation;
  bool on_free;
  uintptr_t owner_bits;  // kSlowBit if anything is filled, else 0: what owner words of slabs have beside the heap
};

// Constant once StartFill was called. Zero-initialised state is valid: nothing is filled.
extern FillOptions fill_options;

// Takes the options over. REQUIRES: no heap is in use yet. zero wins over junk, as in jemalloc.
void StartFill(const Configuration& configuration);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_FILL_H_
