// SPDX-License-Identifier: Apache-2.0
//
// The memory of a new chunk, within the limits of the process: RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK with
// mlockall(MCL_FUTURE), the number of mappings.
//
// Not thread safe: under the lock of units (units.h). Zero-initialised state is valid: nothing was refused.
#ifndef HEAPTAP_ALLOCATOR_CORE_NEW_CHUNK_H_
#define HEAPTAP_ALLOCATOR_CORE_NEW_CHUNK_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/core/slab.h"

namespace heaptap {

// The bytes of the pages that the descriptors of the first `units` units of a chunk take.
constexpr size_t DescriptorBytes(size_t units) { return RoundUp(units * sizeof(Slab), kPageSize); }

// The entries of chunk_table from `begin` to before `end`. All other entries were never written. Empty: begin >= end.
struct WrittenEntries {
  size_t begin;
  size_t end;
};

// A new chunk of at least `needed` bytes, a multiple of the unit size, with `shift`, `units` and `huge_pages` set.
// `is_first`: no other chunk has units of this size. nullptr: out of memory; or the units are long and memory is
// limited, so that the caller must use short ones.
Chunk* MapChunk(unsigned shift, size_t needed, bool is_first, const WrittenEntries& written);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_NEW_CHUNK_H_
