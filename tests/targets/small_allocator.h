/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tiny sampled allocator other than heaptap: it follows only the otel_memory contract (no control block, no heaptap
 * probes). Every 16th block is a sample and stands for 16, or another number if the program asks for it.
 */
#ifndef SMALL_ALLOCATOR_H_
#define SMALL_ALLOCATOR_H_

#include <stddef.h>

enum { SMALL_SAMPLE_EVERY = 16 };

void* small_allocate(size_t size);
void small_free(void* block);

/* From now on every `every`th block is a sample and stands for so many. */
void small_set_rate(unsigned every);

/* Fires the probe of free for an address that is no sample, as an allocator does that does not know its samples. */
void small_report_free(void* block);

#endif /* SMALL_ALLOCATOR_H_ */
