// SPDX-License-Identifier: Apache-2.0
//
// The slow paths of malloc_fast.cc that core/allocate.h does not have.
#ifndef HEAPTAP_ALLOCATOR_API_MALLOC_FAST_H_
#define HEAPTAP_ALLOCATOR_API_MALLOC_FAST_H_

#include <stddef.h>

namespace heaptap {

// operator new when no block is ready. Without memory it calls the new handler or throws std::bad_alloc.
void* NewSlow(size_t size, size_t size_class);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_API_MALLOC_FAST_H_
