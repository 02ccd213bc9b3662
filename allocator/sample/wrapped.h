// SPDX-License-Identifier: Apache-2.0
//
// What libheaptap-guest.a needs from libheaptap-sample.a: samples of malloc's blocks, which form no named heap.
//
// Any thread, any time. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_WRAPPED_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_WRAPPED_H_

#include <stddef.h>
#include <stdint.h>

extern "C" {

// `charge` bytes were more than heaptap_sample_left, and have been subtracted from it. Decides with the block's usable
// size, or with `size` if there is no `usable_size`. `block` nullptr: there is no block to sample. Returns `block`.
void* heaptap_sample_wrapped_alloc(void* block, uint64_t charge, size_t (*usable_size)(void*), size_t size);

// The block is about to be freed, and may be a sample (heaptap_sample_counts).
void heaptap_sample_wrapped_free(const void* block);

}  // extern "C"

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_WRAPPED_H_
