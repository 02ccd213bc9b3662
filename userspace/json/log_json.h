// SPDX-License-Identifier: Apache-2.0
//
// The log of samples in the form of jemalloc's prof.log_start and prof.log_stop.
//
// Format: src/prof_log.c of jemalloc 5.3, prof_log_emit_*: allocations refer to tables of threads and stack traces by
// number. As in jemalloc, only freed samples are included. An addition is the number of samples that were overwritten
// before the log was written ("lost_allocations" in "info").
#ifndef HEAPTAP_USERSPACE_JSON_LOG_JSON_H_
#define HEAPTAP_USERSPACE_JSON_LOG_JSON_H_

#include <string>

#include "userspace/profile/sample_record.h"

namespace heaptap::json {

// Thread-safe.
std::string LogJson(const profile::SampleRecords& records);

}  // namespace heaptap::json

#endif  // HEAPTAP_USERSPACE_JSON_LOG_JSON_H_
