// SPDX-License-Identifier: Apache-2.0
//
// What a collector knows about a process's allocator, in the format of malloc_stats_print("J").
//
// Format: src/stats.c of jemalloc 5.3. Numbers that only the process knows are omitted. stats.allocated is the
// profile's estimate.
#ifndef HEAPTAP_USERSPACE_API_MEMORY_JSON_H_
#define HEAPTAP_USERSPACE_API_MEMORY_JSON_H_

#include <string>

#include "userspace/api/collector.h"
#include "userspace/profile/figures.h"

namespace heaptap::api {

// Thread-safe.
std::string MemoryJson(const profile::ProcessSummary& process, const profile::AllocatorFigures& figures);

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_MEMORY_JSON_H_
