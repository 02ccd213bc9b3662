// SPDX-License-Identifier: Apache-2.0
//
// The samples that the library remembers, so that it knows them when they are freed: a set of addresses, each with the
// tag of its heap, since heaps may lie within each other.
//
//   line    eight slots in one cache line; an address has one line in each level
//   level   a table of lines, each level eight times as large as the one before. An address goes to the first level
//           whose line has an empty slot. The first level is static; the others are mapped when they are needed, and
//           stay
//
// Any thread, any time, in signal handlers too. There is no lock, so a fork finds nothing half done. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_REMEMBERED_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_REMEMBERED_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap::sample {

// Returns false if there is no memory.
bool Remember(const void* block, uint64_t heap);

// Forgets the sample. Returns whether it was remembered.
bool Forget(const void* block, uint64_t heap);

// Forgets all samples of the heap in the range, and calls `forgotten` for each.
void ForgetRange(const void* begin, size_t size, uint64_t heap, void (*forgotten)(const void* block, uint64_t heap));

}  // namespace heaptap::sample

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_REMEMBERED_H_
