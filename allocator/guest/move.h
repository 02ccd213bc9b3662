// SPDX-License-Identifier: Apache-2.0
//
// realloc from a block of the host to a sample.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_GUEST_MOVE_H_
#define HEAPTAP_ALLOCATOR_GUEST_MOVE_H_

#include <stddef.h>

namespace heaptap {

// Moves the contents of a block of the host to a sample of at least `size` bytes, and frees the block. Returns the
// sample. nullptr: the host has no memory for an intermediate step, and the block is unchanged.
void* MoveToSample(void* pointer, void* sample, size_t size);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_MOVE_H_
