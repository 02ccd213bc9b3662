// SPDX-License-Identifier: Apache-2.0
//
// The probes of libheaptap-sample.a, in probes.S. errno is kept.
#ifndef HEAPTAP_ALLOCATOR_SAMPLE_PROBES_H_
#define HEAPTAP_ALLOCATOR_SAMPLE_PROBES_H_

#include <stddef.h>
#include <stdint.h>

#include "heaptap/contract.h"

extern "C" {

// otel_memory:alloc and heaptap:heap_alloc. Returns the block.
void* heaptap_sample_probe_alloc(const void* block, size_t size, uint64_t weight, uint64_t heap, const char* name);
// otel_memory:free and heaptap:heap_free
void heaptap_sample_probe_free(const void* block, uint64_t heap);
// heaptap:start
void heaptap_sample_probe_start(const heaptap_control* control);

// The number of listeners. The kernel writes it at any time.
extern uint16_t heaptap_sample_semaphore_alloc;
// heaptap:rate
extern uint16_t heaptap_sample_semaphore_rate[HEAPTAP_RATE_SITES];

}  // extern "C"

#endif  // HEAPTAP_ALLOCATOR_SAMPLE_PROBES_H_
