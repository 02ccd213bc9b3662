// SPDX-License-Identifier: Apache-2.0
//
// The USDT probes: contract.h specifies them, probes.S defines them. Each function has one probe site; a call costs a
// few nanoseconds without a listener. errno is kept. REQUIRES: no lock is held but that of dumps.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_

#include <stddef.h>
#include <stdint.h>

#include "heaptap/contract.h"

extern "C" {

// otel_memory:alloc. `frees`: memory for at least one entry, even if `where` says that there is none.
void heaptap_probe_alloc(const void* pointer, size_t size, uint64_t weighted_bytes, uint64_t serial,
                         const struct heaptap_free* frees, uint64_t where);
// The same probe at a faster site. REQUIRES: CanUseCallSite (probe_sites.h).
void heaptap_probe_alloc_by_call(const void* pointer, size_t size, uint64_t weighted_bytes, uint64_t serial,
                                 const struct heaptap_free* frees, uint64_t where);
// otel_memory:free
void heaptap_probe_free(const void* pointer);
// heaptap:frees
void heaptap_probe_frees(const struct heaptap_free* frees, uint64_t where);
// heaptap:start
void heaptap_probe_start(const struct heaptap_control* control);
// heaptap:dump
void heaptap_probe_dump(const struct heaptap_dump_request* request);
// heaptap:thread_name
void heaptap_probe_thread_name(const char* name);

// The number of listeners of each probe. The kernel writes it at any time; read it with HasListener.
extern uint16_t heaptap_semaphore_alloc;
extern uint16_t heaptap_semaphore_frees;
extern uint16_t heaptap_semaphore_dump;
extern uint16_t heaptap_semaphore_thread_name;
// heaptap:rate
extern uint16_t heaptap_semaphore_rate[HEAPTAP_RATE_SITES];

}  // extern "C"

namespace heaptap {

// Whether any program listens to the probe with this semaphore. Uses an __atomic builtin instead of std::atomic,
// because the semaphores are plain words of probes.S. Relaxed: no other data depends on the value.
inline bool HasListener(const uint16_t& semaphore) { return __atomic_load_n(&semaphore, __ATOMIC_RELAXED) != 0; }

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_PROBES_H_
