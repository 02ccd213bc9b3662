// SPDX-License-Identifier: Apache-2.0
//
// Blocks for libc and the dynamic linker while the host is not found yet: looking for a name that does not exist
// allocates the text of an error. They lie in the range, in slabs of samples, so free knows them by their address; they
// have the serial number 0, and are not samples.
//
// Any thread, any time. nullptr: out of memory, or the size is above kSmallMaximum.
#ifndef HEAPTAP_ALLOCATOR_GUEST_EARLY_BLOCKS_H_
#define HEAPTAP_ALLOCATOR_GUEST_EARLY_BLOCKS_H_

#include <stddef.h>
#include <stdint.h>

namespace heaptap {

// The serial number of a block that is not a sample.
inline constexpr uint64_t kNoSample = 0;

// The block reads as zero.
void* TakeEarlyBlock(size_t size);

// realloc of an early block or of nullptr.
void* ResizeEarlyBlock(void* pointer, size_t size);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_EARLY_BLOCKS_H_
