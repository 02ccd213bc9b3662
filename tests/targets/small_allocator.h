/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny sampled allocator other than heaptap: it follows only the otel_memory contract (no control block, no heaptap
 * probes). Every 16th block is a sample and stands for 16.
 */
#ifndef SMALL_ALLOCATOR_H_
#define SMALL_ALLOCATOR_H_

#include <stddef.h>

enum { SMALL_SAMPLE_EVERY = 16 };

void* small_allocate(size_t size);
void small_free(void* block);

#endif /* SMALL_ALLOCATOR_H_ */
