// SPDX-License-Identifier: Apache-2.0
//
// Writer of the latest samples, as jemalloc's experimental.prof_recent.alloc_dump has them.
//
// Format: src/prof_recent.c of jemalloc 5.3, prof_recent_alloc_dump. Of a sample only the usable size is known, so
// "size" is that too; thread ids are the kernel's.
#ifndef HEAPTAP_USERSPACE_EXPORT_RECENT_JSON_H_
#define HEAPTAP_USERSPACE_EXPORT_RECENT_JSON_H_

#include <string>

#include "userspace/profile/sample_record.h"

namespace heaptap::exporter {

// Thread-safe.
std::string RecentJson(const profile::SampleRecords& records);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_RECENT_JSON_H_
