// SPDX-License-Identifier: Apache-2.0
//
// The configuration of the process: jemalloc's options and the collector's. read_options.h reads them.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_CONFIGURATION_H_
#define HEAPTAP_ALLOCATOR_PROCESS_CONFIGURATION_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "allocator/core/options.h"
#include "heaptap/contract.h"

namespace heaptap {

// The letters that malloc_stats_print, stats_print_opts and stats_interval_opts accept.
inline constexpr char kStatisticsLetters[] = "Jgmdablxeh";

// The largest decay time, in milliseconds: the limit of jemalloc's clock.
inline constexpr int64_t kMaxDecayMilliseconds = 18446744072000;

// Fields have jemalloc's names, unless a comment says otherwise, and their defaults. Options without an effect are kept
// for opt.* of mallctl.
struct Configuration {
  // Profiling.
  bool prof = false;        // control and dumps from inside the process
  bool prof_active = true;  // the initial value of prof.active
  bool prof_thread_active_init = true;
  bool prof_accum = false;
  bool prof_gdump = false;       // ignored if only prof_leak enables prof
  bool prof_final = false;       // a dump at exit
  bool prof_leak = false;        // a leak summary at exit; implies prof, and prof_final unless it was given
  bool prof_leak_error = false;  // exit status 1 if there are leaks; implies prof_leak
  bool prof_stats = false;
  bool prof_sys_thread_name = false;
  bool prof_pid_namespace = false;
  bool prof_log = false;
  bool prof_unbias = true;
  uint8_t prof_time_resolution = 0;  // 1: high
  unsigned prof_bt_max = 128;
  size_t lg_sample = HEAPTAP_DEFAULT_LG_SAMPLE;  // lg_prof_sample
  ssize_t lg_prof_interval = -1;
  uint64_t prof_interval = 0;  // not an option: 1 << lg_prof_interval, bytes between interval dumps; 0: no such dumps
  ssize_t prof_recent_alloc_max = 0;
  char prefix[PATH_MAX] = "jeprof";  // prof_prefix: for the names of automatic dumps; empty: no such dumps

  // Options of HEAPTAP_CONF (contract.h).
  bool drop_deepbind = true;
  uint32_t collector_lg_sample = HEAPTAP_NO_RATE;
  uint32_t collector_pid = 0;
  bool collector_gives_areas = false;
  bool verify_counts = false;
  bool has_seed = false;
  uint64_t seed = 0;

  // Other options that have an effect.
  bool abort_conf = false;
  bool confirm_conf = false;
  bool stats_print = false;
  char stats_print_opts[sizeof(kStatisticsLetters)] = "";
  int64_t stats_interval = -1;
  char stats_interval_opts[sizeof(kStatisticsLetters)] = "";
  bool junk_alloc = false;  // from junk
  bool junk_free = false;   // from junk
  bool zero = false;
  bool xmalloc = false;
  bool abort_invalid_free = false;  // heaptap's own option
  bool debug_check = false;         // heaptap's own option; a release build ignores it
  Thp thp = Thp::kDefault;
  ssize_t dirty_decay_ms = 1000;  // shorter than jemalloc's: without background_thread, an idle process purges nothing
  bool background_thread = false;

  uint8_t junk = 0;               // bit 0: alloc, bit 1: free
  bool prof_final_given = false;  // the options contained prof_final, with either value

  // Options without an effect. The defaults are jemalloc's, or describe heaptap.
  bool abort = false;
  bool cache_oblivious = false;
  bool trust_madvise = false;
  bool retain = true;
  bool tcache = true;
  bool experimental_infallible_new = false;
  bool experimental_tcache_gc = true;
  bool huge_arena_pac_thp = false;
  bool disable_large_size_classes = false;
  uint8_t metadata_thp = 0;
  uint8_t dss = 0;
  uint8_t percpu_arena = 0;
  uint8_t zero_realloc = 1;
  unsigned narenas = 1;
  ssize_t muzzy_decay_ms = 0;
  size_t oversize_threshold = size_t{8} << 20;
  int64_t mutex_max_spin = 600;
  size_t max_background_threads = 4;
  size_t process_madvise_max_batch = 0;
  unsigned debug_double_free_max_scan = 0;
  size_t tcache_max = size_t{32} << 10;
  unsigned tcache_nslots_small_min = 20;
  unsigned tcache_nslots_small_max = 200;
  unsigned tcache_nslots_large = 20;
  ssize_t lg_tcache_nslots_mul = 1;
  size_t tcache_gc_incr_bytes = size_t{64} << 10;
  size_t tcache_gc_delay_bytes = 0;
  unsigned lg_tcache_flush_small_div = 1;
  unsigned lg_tcache_flush_large_div = 1;
  size_t lg_extent_max_active_fit = 6;
  bool hpa = false;
  size_t hpa_slab_max_alloc = size_t{64} << 10;
  size_t hpa_hugification_threshold = 1992294;
  uint64_t hpa_hugify_delay_ms = 10000;
  uint64_t hpa_min_purge_interval_ms = 5000;
  uint32_t hpa_dirty_mult = 16384;  // in 1/65536
  size_t hpa_sec_nshards = 4;
  size_t hpa_sec_max_alloc = size_t{32} << 10;
  size_t hpa_sec_max_bytes = size_t{256} << 10;
  size_t hpa_sec_bytes_after_flush = size_t{128} << 10;
  size_t hpa_sec_batch_fill_extra = 0;
};

// The options of the core. zero takes precedence over junk, as in jemalloc.
CoreOptions CoreOptionsOf(const Configuration& configuration);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_CONFIGURATION_H_
