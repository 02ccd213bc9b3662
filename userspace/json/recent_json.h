// SPDX-License-Identifier: Apache-2.0
//
// The latest samples in the form of jemalloc's experimental.prof_recent.alloc_dump.
//
// Format: src/prof_recent.c of jemalloc 5.3, prof_recent_alloc_dump. Only the usable size of a sample is known, so
// "size" and "usize" are equal. Thread ids are TIDs.
#ifndef HEAPTAP_USERSPACE_JSON_RECENT_JSON_H_
#define HEAPTAP_USERSPACE_JSON_RECENT_JSON_H_

#include <string>

#include "userspace/profile/sample_record.h"

namespace heaptap::json {

// Thread-safe.
std::string RecentJson(const profile::SampleRecords& records);

}  // namespace heaptap::json

#endif  // HEAPTAP_USERSPACE_JSON_RECENT_JSON_H_
