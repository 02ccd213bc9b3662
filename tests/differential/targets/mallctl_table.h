// SPDX-License-Identifier: Apache-2.0
//
// Every mallctl name of jemalloc 5.3.0 and 5.3.1 with its types and trials, for mallctl_trials.c; and names that do not
// exist. {a,b} in a name stands for two names. All data is constant.
#ifndef HEAPTAP_TESTS_DIFFERENTIAL_TARGETS_MALLCTL_TABLE_H_
#define HEAPTAP_TESTS_DIFFERENTIAL_TARGETS_MALLCTL_TABLE_H_

enum Type {
  NOTHING,
  BOOLEAN,
  UNSIGNED,
  SIZE,
  SIGNED_SIZE,
  NUMBER32,
  NUMBER64,
  TEXT,
  POINTER,
  HOOK,           // a function of the program
  COUNTS,         // two NUMBER64: the sum of sizes and how many
  WRITER,         // a function that takes text, and its argument
  HOOKS,          // three functions and their argument
  CALLBACK,       // a function and its argument
  ARENA_SETTING,  // a pointer to functions, a boolean
  BATCH,          // where pointers go, how many, their size, flags
  EXTENT,         // six words about a block
  BLOCK_USE,      // three words about a block
};

// The part of a value that two allocators have in common.
enum Comparison {
  EXACT,
  IS_NOUGHT,  // only whether it is nought
  ANY,        // nothing
};

struct Row {
  const char* name;
  enum Type read;   // NOTHING if it cannot be read
  enum Type write;  // NOTHING if it cannot be written
  enum Comparison comparison;
  // The values to write, in turn, separated by ';'. Numbers, true, false; texts; `same` (what was read), `null`,
  // `block` (a live one of kBlockSize bytes), `hook` (a function that may be called), `zero` (bytes). Without it: zero
  // bytes.
  const char* written;
  // The name would harm the process: only calls that fail are tried.
  int is_harmful;
};

// Blocks of this size are alive while names are tried; it is class 7 of both allocators.
enum { kBlockSize = 112, kBlocks = 100, kBlocksFreed = 40 };
// Its class is 10 * 8 KiB, 12 * 8 KiB, 14 * 8 KiB: large in both.
enum { kLargeSize = 114688, kLarge = 3 };

#define MUTEX_FIGURES "{num_ops,num_wait,num_spin_acq,num_owner_switch,total_wait_time,max_wait_time}"
#define SLABS "{npageslabs_nonhuge,npageslabs_huge,nactive_nonhuge,nactive_huge,ndirty_nonhuge,ndirty_huge}"
#define ARENA_MUTEXES                                                                              \
  "{large,extent_avail,extents_dirty,extents_muzzy,extents_retained,decay_dirty,decay_muzzy,base," \
  "tcache_list,hpa_shard,hpa_shard_grow,hpa_sec}"
#define GLOBAL_MUTEXES                                                                     \
  "{background_thread,max_per_bg_thd,ctl,prof,prof_thds_data,prof_dump,prof_recent_alloc," \
  "prof_recent_dump,prof_stats}"

static const struct Row kTable[] = {
    {"version", TEXT, NOTHING, ANY, 0, 0},
    {"epoch", NUMBER64, NUMBER64, IS_NOUGHT, "1;0;same", 0},
    {"background_thread", BOOLEAN, BOOLEAN, EXACT, "true;false", 0},
    {"max_background_threads", SIZE, SIZE, ANY, "same;1;0;100000", 0},

    {"thread.arena", UNSIGNED, UNSIGNED, EXACT, "0;same;100000;4294967295", 0},
    {"thread.{allocated,deallocated}", NUMBER64, NOTHING, IS_NOUGHT, 0, 0},
    {"thread.{allocatedp,deallocatedp}", POINTER, NOTHING, IS_NOUGHT, 0, 0},
    {"thread.idle", NOTHING, NOTHING, EXACT, 0, 0},
    {"thread.tcache.enabled", BOOLEAN, BOOLEAN, EXACT, "false;true", 0},
    {"thread.tcache.flush", NOTHING, NOTHING, EXACT, 0, 0},
    {"thread.tcache.max", SIZE, SIZE, EXACT, "same;4096", 0},
    {"thread.tcache.ncached_max.read_sizeclass", SIZE, SIZE, ANY, "64", 0},
    {"thread.tcache.ncached_max.write", NOTHING, TEXT, ANY, "8-128:1;nonsense;null", 0},
    {"thread.peak.read", NUMBER64, NOTHING, ANY, 0, 0},
    {"thread.peak.reset", NOTHING, NOTHING, EXACT, 0, 0},
    {"thread.prof.name", TEXT, TEXT, EXACT, "worker;a name longer than fifteen bytes;two words;;line\nfeed;null", 0},
    {"thread.prof.active", BOOLEAN, BOOLEAN, EXACT, "false;true", 0},

    {"tcache.create", UNSIGNED, NOTHING, ANY, 0, 0},
    {"tcache.flush", NOTHING, UNSIGNED, EXACT, "100000", 1},
    {"tcache.destroy", NOTHING, UNSIGNED, EXACT, "100000", 1},

    {"config.{cache_oblivious,debug,fill,lazy_lock,opt_safety_checks,prof,prof_libgcc,prof_libunwind,prof_frameptr,"
     "stats,utrace,xmalloc}",
     BOOLEAN, NOTHING, EXACT, 0, 0},
    {"config.malloc_conf", TEXT, NOTHING, EXACT, 0, 0},

    {"opt.{abort,abort_conf,cache_oblivious,trust_madvise,confirm_conf,hpa,retain,background_thread,stats_print,zero,"
     "utrace,xmalloc,experimental_infallible_new,tcache,prof,prof_active,prof_thread_active_init,prof_gdump,prof_final,"
     "prof_leak,prof_leak_error,prof_accum,prof_stats,prof_sys_thread_name,prof_pid_namespace,prof_log,prof_unbias,"
     "experimental_tcache_gc,disable_large_size_classes,huge_arena_pac_thp,hpa_hugify_sync,"
     "experimental_hpa_start_huge_if_thp_always,experimental_hpa_enforce_hugify}",
     BOOLEAN, NOTHING, EXACT, 0, 0},
    {"opt.{metadata_thp,dss,percpu_arena,stats_print_opts,stats_interval_opts,junk,thp,prof_prefix,"
     "prof_time_resolution,zero_realloc,hpa_hugify_style,malloc_conf.symlink,malloc_conf.env_var,"
     "malloc_conf.global_var,malloc_conf.global_var_2_conf_harder}",
     TEXT, NOTHING, EXACT, 0, 0},
    {"opt.{hpa_slab_max_alloc,hpa_hugification_threshold,hpa_sec_nshards,hpa_sec_max_alloc,hpa_sec_max_bytes,"
     "hpa_sec_bytes_after_flush,hpa_sec_batch_fill_extra,oversize_threshold,max_background_threads,tcache_max,"
     "tcache_gc_incr_bytes,tcache_gc_delay_bytes,lg_extent_max_active_fit,lg_prof_sample,hpa_purge_threshold,"
     "process_madvise_max_batch,calloc_madvise_threshold}",
     SIZE, NOTHING, EXACT, 0, 0},
    {"opt.{dirty_decay_ms,muzzy_decay_ms,lg_tcache_nslots_mul,lg_prof_interval,prof_recent_alloc_max,"
     "lg_san_uaf_align,experimental_hpa_max_purge_nhp}",
     SIGNED_SIZE, NOTHING, EXACT, 0, 0},
    {"opt.{stats_interval,mutex_max_spin}", NUMBER64, NOTHING, EXACT, 0, 0},
    {"opt.{hpa_hugify_delay_ms,hpa_min_purge_interval_ms,hpa_min_purge_delay_ms}", NUMBER64, NOTHING, EXACT, 0, 0},
    {"opt.{narenas,tcache_nslots_small_min,tcache_nslots_small_max,tcache_nslots_large,lg_tcache_flush_small_div,"
     "lg_tcache_flush_large_div,prof_bt_max,debug_double_free_max_scan}",
     UNSIGNED, NOTHING, EXACT, 0, 0},
    {"opt.hpa_dirty_mult", NUMBER32, NOTHING, EXACT, 0, 0},

    {"arena.{0,1,4096,4097,4098}.initialized", BOOLEAN, NOTHING, EXACT, 0, 0},
    {"arena.{0,1,4096,4097,4098}.{purge,decay}", NOTHING, NOTHING, EXACT, 0, 0},
    {"arena.{0,1,4096,4097,4098}.{reset,destroy}", NOTHING, NOTHING, EXACT, 0, 1},
    {"arena.{0,1,4096,4097,4098}.dss", TEXT, TEXT, EXACT, "same;disabled;primary;nonsense;null", 0},
    {"arena.{0,1,4096,4097,4098}.{dirty_decay_ms,muzzy_decay_ms}", SIGNED_SIZE, SIGNED_SIZE, EXACT,
     "same;0;-1;-2;10000;9223372036854775807", 0},
    {"arena.{0,1,4096,4097,4098}.oversize_threshold", SIZE, SIZE, ANY, "same;0", 0},
    {"arena.{0,1,4096,4097,4098}.retain_grow_limit", SIZE, SIZE, ANY, "same;0;1;4096", 0},
    {"arena.{0,1,4096,4097,4098}.extent_hooks", POINTER, POINTER, IS_NOUGHT, "same", 0},
    {"arena.{0,1}.name", TEXT, TEXT, ANY, "same;name", 0},

    {"arenas.narenas", UNSIGNED, NOTHING, EXACT, 0, 0},
    {"arenas.{dirty_decay_ms,muzzy_decay_ms}", SIGNED_SIZE, SIGNED_SIZE, EXACT,
     "same;0;-1;-2;10000;9223372036854775807", 0},
    {"arenas.{quantum,page,hugepage,tcache_max}", SIZE, NOTHING, EXACT, 0, 0},
    {"arenas.{nbins,nhbins,nlextents}", UNSIGNED, NOTHING, EXACT, 0, 0},
    {"arenas.bin.{0,7,35,36,40,41,4294967296,18446744073709551615}.{size,slab_size}", SIZE, NOTHING, EXACT, 0, 0},
    {"arenas.bin.{0,7,35,36,40,41}.nregs", NUMBER32, NOTHING, EXACT, 0, 0},
    {"arenas.bin.{0,41}.nshards", NUMBER32, NOTHING, EXACT, 0, 0},
    {"arenas.lextent.{0,1,190,191,195,196}.size", SIZE, NOTHING, EXACT, 0, 0},
    {"arenas.create", UNSIGNED, POINTER, ANY, "null", 0},
    {"arenas.lookup", UNSIGNED, POINTER, EXACT, "block;null;hook", 0},

    {"prof.thread_active_init", BOOLEAN, BOOLEAN, EXACT, "false;true", 0},
    {"prof.active", BOOLEAN, BOOLEAN, EXACT, "false;true", 0},
    {"prof.gdump", BOOLEAN, BOOLEAN, EXACT, "true;false", 0},
    {"prof.dump", NOTHING, TEXT, EXACT, "given.heap;no folder/given.heap;;null", 0},
    {"prof.prefix", NOTHING, TEXT, EXACT, "other;null;", 0},
    {"prof.reset", NOTHING, SIZE, EXACT, "19;0;63;64;18446744073709551615", 0},
    {"prof.lg_sample", SIZE, NOTHING, EXACT, 0, 0},
    {"prof.interval", NUMBER64, NOTHING, EXACT, 0, 0},
    {"prof.log_start", NOTHING, TEXT, EXACT, "given.json;again.json;null;", 0},
    {"prof.log_stop", NOTHING, NOTHING, EXACT, 0, 0},
    {"prof.stats.bins.{7,35}.{live,accum}", COUNTS, NOTHING, EXACT, 0, 0},
    {"prof.stats.bins.{36,41,1000}.{live,accum}", COUNTS, NOTHING, ANY, 0, 0},
    {"prof.stats.lextents.{190,191,196,1000}.{live,accum}", COUNTS, NOTHING, EXACT, 0, 0},

    {"approximate_stats.active", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.{allocated,active,metadata,resident,mapped}", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.{metadata_thp,zero_reallocs,metadata_edata,metadata_rtree,pinned,retained}", SIZE, NOTHING, IS_NOUGHT, 0,
     0},
    {"stats.background_thread.num_threads", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.background_thread.{num_runs,run_interval}", NUMBER64, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.mutexes." GLOBAL_MUTEXES "." MUTEX_FIGURES, NUMBER64, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.mutexes." GLOBAL_MUTEXES ".max_num_thds", NUMBER32, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.mutexes.reset", NOTHING, NOTHING, EXACT, 0, 0},

    {"stats.arenas.{0,1,4096,4097,4098}.nthreads", UNSIGNED, NOTHING, EXACT, 0, 0},
    {"stats.arenas.{0,4096}.uptime", NUMBER64, NOTHING, ANY, 0, 0},
    {"stats.arenas.{0,4096}.dss", TEXT, NOTHING, EXACT, 0, 0},
    {"stats.arenas.{0,4096}.{dirty_decay_ms,muzzy_decay_ms}", SIGNED_SIZE, NOTHING, EXACT, 0, 0},
    {"stats.arenas.{0,4096}.{pactive,mapped,base,resident}", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.{0,4096}.{pdirty,pmuzzy,retained,extent_avail,internal,metadata_edata,metadata_rtree,metadata_thp,"
     "tcache_bytes,tcache_stashed_bytes,abandoned_vm,hpa_sec_bytes,pinned}",
     SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.{0,4096}.{dirty_npurge,dirty_nmadvise,dirty_purged,muzzy_npurge,muzzy_nmadvise,muzzy_purged}",
     NUMBER64, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.hpa_sec_{hits,misses,dalloc_noflush,dalloc_flush,overfills}", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.{0,4096}.{small,large}.allocated", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.{0,4096}.{small,large}.{nmalloc,ndalloc,nrequests,nfills,nflushes}", NUMBER64, NOTHING, IS_NOUGHT, 0,
     0},
    {"stats.arenas.{0,4096}.bins.7.{nmalloc,ndalloc,nrequests,nfills,nflushes,nslabs,nreslabs}", NUMBER64, NOTHING,
     IS_NOUGHT, 0, 0},
    {"stats.arenas.{0,1,4098}.bins.{0,35,36,40,41,1000}.nmalloc", NUMBER64, NOTHING, ANY, 0, 0},
    {"stats.arenas.{0,4096}.bins.7.{curregs,curslabs,nonfull_slabs}", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.bins.{7,41}.mutex." MUTEX_FIGURES, NUMBER64, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.bins.{7,41}.mutex.max_num_thds", NUMBER32, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.{0,4096,4098}.lextents.{0,190,191,195,196}.{nmalloc,ndalloc,nrequests}", NUMBER64, NOTHING, ANY, 0,
     0},
    {"stats.arenas.{0,4096}.lextents.{0,190}.curlextents", SIZE, NOTHING, ANY, 0, 0},
    {"stats.arenas.0.extents.{0,198,199,1000}.{ndirty,nmuzzy,nretained,npinned,dirty_bytes,muzzy_bytes,retained_bytes,"
     "pinned_bytes}",
     SIZE, NOTHING, ANY, 0, 0},
    {"stats.arenas.0.mutexes." ARENA_MUTEXES "." MUTEX_FIGURES, NUMBER64, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.mutexes." ARENA_MUTEXES ".max_num_thds", NUMBER32, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.hpa_shard.{npurge_passes,npurges,nhugifies,nhugify_failures,ndehugifies}", NUMBER64, NOTHING,
     IS_NOUGHT, 0, 0},
    {"stats.arenas.0.hpa_shard.{npageslabs,nactive,ndirty}", SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.hpa_shard.{slabs,full_slabs,empty_slabs,nonfull_slabs.0,nonfull_slabs.63,nonfull_slabs.64}." SLABS,
     SIZE, NOTHING, IS_NOUGHT, 0, 0},
    {"stats.arenas.0.hpa_shard.alloc.0.{min_extents,max_extents,extents,ps,pages_per_ps,extents_per_ps,"
     "total_elapsed_ns_per_ps}",
     SIZE, NOTHING, IS_NOUGHT, 0, 0},

    {"experimental.hooks.{prof_backtrace,prof_dump,prof_sample,prof_sample_free}", HOOK, HOOK, IS_NOUGHT,
     "hook;null;same", 0},
    {"experimental.hooks.install", POINTER, HOOKS, IS_NOUGHT, "zero", 0},
    {"experimental.hooks.remove", NOTHING, POINTER, EXACT, "null", 0},
    {"experimental.hooks.safety_check_abort", NOTHING, HOOK, EXACT, "hook;null", 0},
    {"experimental.hooks.thread_event", NOTHING, HOOKS, EXACT, "zero", 0},
    {"experimental.thread.activity_callback", CALLBACK, CALLBACK, ANY, "zero", 0},
    {"experimental.utilization.query", EXTENT, POINTER, ANY, "block;null", 0},
    {"experimental.utilization.batch_query", BLOCK_USE, POINTER, ANY, "block;null", 0},
    {"experimental.arenas.{0,1,4098}.pactivep", POINTER, NOTHING, IS_NOUGHT, 0, 0},
    {"experimental.arenas_create_ext", UNSIGNED, ARENA_SETTING, ANY, "zero", 0},
    {"experimental.prof_recent.alloc_max", SIGNED_SIZE, SIGNED_SIZE, EXACT, "10;0;-1;-2;same", 0},
    {"experimental.prof_recent.alloc_dump", NOTHING, WRITER, EXACT, "hook", 0},
    {"experimental.batch_alloc", SIZE, BATCH, EXACT, "zero", 0},

    // Partial paths, invalid numbers, invalid names.
    {"", NUMBER64, NUMBER64, EXACT, 0, 0},
    {".", NUMBER64, NUMBER64, EXACT, 0, 0},
    {"prof", NUMBER64, NUMBER64, EXACT, 0, 0},
    {"prof.", NUMBER64, NUMBER64, EXACT, 0, 0},
    {".prof", NUMBER64, NUMBER64, EXACT, 0, 0},
    {"prof..active", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {"prof.active.", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {"prof.active.now", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {"prof.activ", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {"prof.actives", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {"PROF.ACTIVE", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {" prof.active", BOOLEAN, BOOLEAN, EXACT, "true", 0},
    {"nonsense", NUMBER64, NUMBER64, EXACT, 0, 0},
    {"{thread,thread.prof,thread.tcache,thread.peak,config,opt,arena,arena.0,arenas,arenas.bin,arenas.bin.0,prof.stats,"
     "prof.stats.bins,prof.stats.bins.0,stats,stats.arenas,stats.arenas.0,stats.arenas.0.bins,stats.arenas.0.bins.0,"
     "stats.mutexes,stats.mutexes.ctl,experimental,experimental.hooks,experimental.prof_recent}",
     NUMBER64, NUMBER64, EXACT, 0, 0},
    {"arena.{x,-1,0x,+0,4294967296,18446744073709551615,18446744073709551616}.initialized", BOOLEAN, NOTHING, EXACT, 0,
     0},
    {"arena.{00,0x0, 0}.initialized", BOOLEAN, NOTHING, EXACT, 0, 0},
    {"arena..initialized", BOOLEAN, NOTHING, EXACT, 0, 0},
    {"one.two.three.four.five.six.seven.eight.nine.ten.eleven.twelve", NUMBER64, NUMBER64, EXACT, 0, 0},
    {"prof.active.three.four.five.six.seven.eight.nine.ten.eleven.twelve", NUMBER64, NUMBER64, EXACT, 0, 0},
};

#endif  // HEAPTAP_TESTS_DIFFERENTIAL_TARGETS_MALLCTL_TABLE_H_
