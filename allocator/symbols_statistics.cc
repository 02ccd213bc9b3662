// SPDX-License-Identifier: Apache-2.0
//
// jemalloc's name for the report.
#include "statistics_print.h"
#include "symbols.h"

HEAPTAP_C_EXPORT void malloc_stats_print(void (*write)(void*, const char*), void* opaque, const char* options) {
  heaptap::PrintStatistics(write, opaque, options);
}
