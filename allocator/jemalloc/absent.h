// SPDX-License-Identifier: Apache-2.0
//
// Names of jemalloc's figures about parts that heaptap does not have: waits for jemalloc's mutexes, background threads,
// and huge page shards. Programs that read statistics expect these names, so mallctl and malloc_stats_print show them
// with the value 0.
//
// Constants.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_ABSENT_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_ABSENT_H_

#include <stddef.h>

namespace heaptap::absent {

inline constexpr const char* kGlobalMutexes[] = {
    "background_thread", "max_per_bg_thd",   "ctl",       "prof", "prof_thds_data", "prof_dump",
    "prof_recent_alloc", "prof_recent_dump", "prof_stats"};

inline constexpr const char* kArenaMutexes[] = {
    "large",       "extent_avail", "extents_dirty", "extents_muzzy", "extents_retained", "decay_dirty",
    "decay_muzzy", "base",         "tcache_list",   "hpa_shard",     "hpa_shard_grow",   "hpa_sec"};

// The figures of a mutex, each a uint64_t. A mutex also has max_num_thds, a uint32_t.
inline constexpr const char* kMutexFigures[] = {"num_ops",          "num_wait",        "num_spin_acq",
                                                "num_owner_switch", "total_wait_time", "max_wait_time"};

inline constexpr const char* kBackgroundThreadFigures[] = {"num_threads", "num_runs", "run_interval"};

// The figures of a shard, and of its slabs of huge pages: the full ones, the empty ones, and the others by size.
inline constexpr const char* kShardFigures[] = {"npurge_passes", "npurges", "nhugifies", "ndehugifies"};
inline constexpr const char* kShardSlabFigures[] = {"npageslabs_nonhuge", "npageslabs_huge", "nactive_nonhuge",
                                                    "nactive_huge",       "ndirty_nonhuge",  "ndirty_huge"};
inline constexpr size_t kShardSlabSizes = 64;

}  // namespace heaptap::absent

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_ABSENT_H_
