// SPDX-License-Identifier: Apache-2.0
//
// The copying of realloc.
//
// Any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_GUEST_COPY_H_
#define HEAPTAP_ALLOCATOR_GUEST_COPY_H_

#include <stddef.h>

namespace heaptap {

// Copies a block. `is_zero`: the target reads as zero. Then pages of a large block that are all zeros are not written,
// so that a sparse block stays sparse.
void CopyTo(void* target, bool is_zero, const void* source, size_t bytes);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_GUEST_COPY_H_
