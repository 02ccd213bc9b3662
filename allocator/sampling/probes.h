// SPDX-License-Identifier: Apache-2.0
//
// The USDT probes: contract.h specifies them, probes.S defines them. Each is a function with one probe site; a call
// costs a few nanoseconds without a listener. errno is kept. REQUIRES: no lock is held.
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

// The number of listeners of each probe. The kernel writes it at any time; read it with HasListener.
extern uint16_t heaptap_semaphore_alloc;
extern uint16_t heaptap_semaphore_free;
extern uint16_t heaptap_semaphore_start;
extern uint16_t heaptap_semaphore_dump;
extern uint16_t heaptap_semaphore_thread_name;

}  // extern "C"

namespace heaptap {

// Whether any program listens to the probe with this semaphore. An __atomic builtin and no std::atomic, since the
// semaphores are plain words of probes.S. Relaxed: nothing else is read by it.
inline bool HasListener(const uint16_t& semaphore) { return __atomic_load_n(&semaphore, __ATOMIC_RELAXED) != 0; }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_
