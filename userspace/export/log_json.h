// SPDX-License-Identifier: Apache-2.0
//
// Writer of the log of samples that jemalloc's prof.log_start and prof.log_stop make.
//
// Format: src/prof_log.c of jemalloc 5.3, prof_log_emit_*: threads and stack traces stand in tables, allocations refer
// to them by number. Only samples that have been freed are in it, as there. Beyond jemalloc, "info" says how many
// samples had been overwritten before the log was written ("lost_allocations").
#ifndef HEAPTAP_USERSPACE_EXPORT_LOG_JSON_H_
#define HEAPTAP_USERSPACE_EXPORT_LOG_JSON_H_

#include <string>

#include "userspace/profile/sample_record.h"

namespace heaptap::exporter {

// Thread-safe.
std::string LogJson(const profile::SampleRecords& records);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_LOG_JSON_H_
