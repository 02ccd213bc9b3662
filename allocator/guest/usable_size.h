// SPDX-License-Identifier: Apache-2.0
//
// The usable sizes of the host's blocks.
//
// Any thread, after StartGuest. May call the host. errno may change.
#ifndef HEAPTAP_ALLOCATOR_GUEST_USABLE_SIZE_H_
#define HEAPTAP_ALLOCATOR_GUEST_USABLE_SIZE_H_

#include <stddef.h>

namespace heaptap {

// The usable size that the host's block for such a request would have, at least `size` and not 0. The host is asked
// once for each small size, by nallocx or by a block that is freed again. 0: the host refuses the request.
//
// If the host has no malloc_usable_size, the result is the requested size, rounded up to 8 bytes.
size_t HostUsableSize(size_t size, size_t alignment);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_USABLE_SIZE_H_
