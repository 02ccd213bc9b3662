// SPDX-License-Identifier: Apache-2.0
//
// The USDT probes (contract.h tells what they mean; probes.S holds them). Each is one function with one probe site;
// calling it costs a few nanoseconds when nobody listens. They keep errno. Call them with no lock held.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_

#include <stddef.h>
#include <stdint.h>

#include "heaptap/contract.h"

extern "C" {

// otel_memory:alloc
void heaptap_probe_alloc(const void* pointer, size_t size, uint64_t weighted_bytes);
// otel_memory:free
void heaptap_probe_free(const void* pointer);
// heaptap:start
void heaptap_probe_start(const struct heaptap_control* control);
// heaptap:dump
void heaptap_probe_dump(const struct heaptap_dump_request* request);
// heaptap:thread_name
void heaptap_probe_thread_name(const char* name);

// How many listen to each probe; the kernel writes them.
extern uint16_t heaptap_semaphore_alloc;
extern uint16_t heaptap_semaphore_free;
extern uint16_t heaptap_semaphore_start;
extern uint16_t heaptap_semaphore_dump;
extern uint16_t heaptap_semaphore_thread_name;

}  // extern "C"

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_
