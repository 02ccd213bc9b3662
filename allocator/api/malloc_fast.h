// SPDX-License-Identifier: Apache-2.0
//
// What the functions without a frame jump to.
#ifndef HEAPTAP_ALLOCATOR_API_MALLOC_FAST_H_
#define HEAPTAP_ALLOCATOR_API_MALLOC_FAST_H_

#include <stddef.h>

namespace heaptap {

// operator new when no block is ready: calls the new handler, throws std::bad_alloc.
void* NewSlow(size_t size);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_API_MALLOC_FAST_H_
