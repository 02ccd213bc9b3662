# SPDX-License-Identifier: Apache-2.0
"""Valid and invalid option strings for MALLOC_CONF: every option of jemalloc 5.3.0 and 5.3.1 with every kind of value."""

BOOLEANS = """abort abort_conf cache_oblivious confirm_conf trust_madvise retain stats_print zero utrace xmalloc
experimental_infallible_new tcache background_thread hpa prof prof_active prof_thread_active_init prof_accum prof_gdump
prof_final prof_leak prof_leak_error prof_log prof_stats prof_sys_thread_name prof_unbias prof_pid_namespace
experimental_tcache_gc disable_large_size_classes huge_arena_pac_thp hpa_hugify_sync
experimental_hpa_start_huge_if_thp_always experimental_hpa_enforce_hugify""".split()
BOOLEAN_VALUES = ["true", "false", "", "TRUE", "1", "yes", " true", "truefalse"]

# Forms of numbers, for the options that matter most here.
NUMBER_VALUES = ["", "0x14", "0X14", "024", "+5", " 5", "5 ", "5k", "five", "1.5", "--1", "0x", "08",
                 "18446744073709551615", "18446744073709551616", "-9223372036854775808", "-9223372036854775809"]
# Values around the limits of each option.
NUMBERS = {
    "lg_prof_sample": ["0", "19", "63", "64", "99", "-1"],
    "lg_prof_interval": ["-2", "-1", "0", "30", "63", "64", "99"],
    "prof_recent_alloc_max": ["-2", "-1", "0", "10", "9223372036854775807", "9223372036854775808"],
    "prof_bt_max": ["0", "1", "128", "256", "257", "4294967295", "4294967296", "-1"],
    "dirty_decay_ms": ["-2", "-1", "0", "5000", "18446744073709551", "9223372036854775807"],
    "muzzy_decay_ms": ["-2", "-1", "0", "5000", "9223372036854775807"],
    "narenas": ["0", "1", "4", "4294967295", "4294967296", "-1"],
    "stats_interval": ["-2", "-1", "0", "1000000000000", "9223372036854775807"],
}
# Options for features that heaptap's heap lacks: one valid value, the minimum, one below, the maximum, one above.
OTHER_NUMBERS = {
    "mutex_max_spin": ["-2", "-1", "0", "600"],
    "tcache_max": ["0", "4096", "8388608", "8388609"],
    "lg_tcache_max": ["0", "16", "23", "24", "99"],
    "lg_tcache_nslots_mul": ["-17", "-16", "1", "16", "17"],
    "tcache_nslots_small_min": ["0", "1", "2048", "2049"],
    "tcache_nslots_small_max": ["0", "1", "2048", "2049"],
    "tcache_nslots_large": ["0", "1", "2048", "2049"],
    "tcache_gc_incr_bytes": ["0", "1024", "65536"],
    "tcache_gc_delay_bytes": ["0", "65536"],
    "lg_tcache_flush_small_div": ["0", "1", "16", "17"],
    "lg_tcache_flush_large_div": ["0", "1", "16", "17"],
    "oversize_threshold": ["0", "8388608", "18446744073709551615"],
    "lg_extent_max_active_fit": ["0", "6", "64", "65"],
    "max_background_threads": ["0", "1", "4", "100000"],
    "hpa_slab_max_alloc": ["0", "4096", "65536", "99999999"],
    "hpa_hugification_threshold": ["0", "4096", "99999999"],
    "hpa_hugify_delay_ms": ["0", "10000"],
    "hpa_min_purge_interval_ms": ["0", "5000"],
    "hpa_sec_nshards": ["0", "4", "99999999"],
    "hpa_sec_max_alloc": ["0", "4096", "32768", "999999999"],
    "hpa_sec_max_bytes": ["0", "262144"],
    "hpa_sec_bytes_after_flush": ["0", "131072"],
    "hpa_sec_batch_fill_extra": ["0", "1", "999999999"],
    "lg_san_uaf_align": ["-2", "-1", "12", "64"],
    "san_guard_small": ["0", "1000"],
    "san_guard_large": ["0", "1000"],
    "hpa_purge_threshold": ["4096"],
    "hpa_min_purge_delay_ms": ["0"],
    "process_madvise_max_batch": ["0", "8"],
    "debug_double_free_max_scan": ["32"],
    "calloc_madvise_threshold": ["0", "65536"],
    "tcache_gc_interval_ms": ["10"],
    "experimental_pac_sec_nshards": ["0"],
    "experimental_pac_sec_max_alloc": ["4096"],
    "experimental_pac_sec_max_bytes": ["262144"],
}
WORDS = {
    "metadata_thp": ["disabled", "auto", "always", "nonsense", ""],
    "dss": ["disabled", "primary", "secondary", "nonsense", ""],
    "percpu_arena": ["disabled", "nonsense", ""],
    "junk": ["true", "false", "alloc", "free", "nonsense", ""],
    "thp": ["default", "always", "never", "nonsense", ""],
    "zero_realloc": ["alloc", "free", "abort", "nonsense", ""],
    "prof_time_resolution": ["default", "high", "nonsense", ""],
    "stats_print_opts": ["J", "Jgmdablxeh", "zzz", "JJ", ""],
    "stats_interval_opts": ["J", "gmdablxeh", "zzz", ""],
    "narenas": ["default", "defaults", "nonsense"],
    "prof_prefix": ["name", "folder/name", "", "a:b", "with blank", "p" * 100],
    "hpa_hugification_threshold_ratio": ["0.5", "1", "1.5", "nonsense", ""],
    "hpa_dirty_mult": ["0.25", "-1", "nonsense", ""],
    "narenas_ratio": ["2", "nonsense", ""],
    "slab_sizes": ["default", "1-4096:2", "nonsense", ""],
    "bin_shards": ["1-128:2", "nonsense", ""],
    "hpa_hugify_style": ["auto", "nonsense"],
    "hpa_purge_threshold_ratio": ["0.5", "nonsense"],
    "tcache_ncached_max": ["8-128:10", "nonsense"],
    "log": ["nonsense"],
}
# Keys of jemalloc 4 and earlier, and of no version.
UNKNOWN = """foo PROF Prof proof prof_ prof.active lg_chunk quarantine redzone valgrind lg_dirty_mult purge
experimental_nonsense hpa_sec_nonsense malloc_conf_2_conf_harder collector prof_seed""".split()
MALFORMED = [
    ",", ",,", ":", "::", "prof", "prof,", "prof:true,", "prof:true,,", ",prof:true", "prof:true,,lg_prof_sample:3",
    "prof:true,lg_prof_sample", "prof:true;lg_prof_sample:3", "prof true", "prof=true", " prof:true", "prof :true",
    "prof:true lg_prof_sample:3", "prof:true, lg_prof_sample:3", "-prof:true", "prof\n:true", "prof:tr\nue", "\t", " ",
    "prof:true\n", "pr\u00f6f:true", ":true", ":,prof:true", "prof::true", "prof:true:false", "foo:,prof:true",
    "%s%n:true", "prof:%s%n", "prof:true,foo", "foo:bar,prof:true", "prof:true,foo:bar", "foo:bar,foo:bar",
    "a" * 100, "a" * 100 + ":true", "prof:true," + "b" * 100 + "!",
]
SEVERAL = [
    "prof:true", "prof:true,prof_active:false", "prof:true,prof:false", "prof:false,prof:true",
    "prof:true,prof_thread_active_init:false", "prof:true,prof_active:false,prof_thread_active_init:false",
    "prof:true,lg_prof_sample:3,lg_prof_sample:7", "prof:true,lg_prof_sample:64", "prof:true,lg_prof_interval:30",
    "prof:true,lg_prof_interval:0", "prof:true,lg_prof_interval:63", "prof:true,prof_gdump:true",
    "prof_leak:true,prof_final:false", "prof_final:false,prof_leak:true", "prof_leak:true,prof_final:true",
    "prof_leak:true,prof_leak:false", "prof:false,prof_leak:true", "prof_leak:true,prof_gdump:true,lg_prof_interval:20",
    "prof_leak_error:true,prof_final:true", "prof_leak_error:true,prof_leak:false", "prof:true,prof_stats:true",
    "prof:true,prof_recent_alloc_max:10", "prof:true,prof_sys_thread_name:true", "prof:true,prof_prefix:",
    "prof:true,prof_prefix:first,prof_prefix:second", "prof:true,prof_accum:true", "junk:true,zero:true",
    "dirty_decay_ms:0,muzzy_decay_ms:0", "tcache:false,prof:true", "prof:true,prof_bt_max:10,foo:bar",
]
ABORTING = [
    "abort_conf:true", "abort_conf:true,foo:bar", "foo:bar,abort_conf:true", "abort_conf:true,prof:yes",
    "abort_conf:true,lg_prof_interval:99", "abort_conf:true,prof", "abort_conf:true,prof:true,", "abort_conf:true,,",
    "abort_conf:true,lg_prof_sample:99", "abort_conf:true,experimental_nonsense:1", "abort_conf:true,abort_conf:false,foo:bar",
    "abort_conf:yes,foo:bar", "abort_conf:true,prof_leak_error:true", "abort_conf:true,prof_bt_max:10",
    "abort_conf:true,hpa_sec_bytes_after_flush:0", "abort_conf:true,percpu_arena:nonsense",
    "abort_conf:true,stats_print_opts:zzz",
]
CONFIRMING = [
    "confirm_conf:true", "prof:true,confirm_conf:true", "confirm_conf:true,foo:bar,prof:true",
    "confirm_conf:true,prof:yes,lg_prof_sample:3", "confirm_conf:true,lg_prof_interval:99", "confirm_conf:true,prof",
    "confirm_conf:true,prof:true,", "confirm_conf:true,confirm_conf:false,prof:true", "confirm_conf:yes",
    "confirm_conf:true,hpa:true,percpu_arena:disabled,dss:primary", "confirm_conf:true,prof_prefix:,prof_active:true",
    "confirm_conf:true,abort_conf:true,foo:bar", "confirm_conf:true,prof_bt_max:10",
]
KIBIBYTES_64 = 64 * 1024
LONG = {
    "64 KiB: pairs": ("prof_active:true," * KIBIBYTES_64)[:KIBIBYTES_64 - 20] + "prof_active:true",
    "64 KiB: one value": "prof_prefix:" + "p" * KIBIBYTES_64,
    "64 KiB: one key": "k" * KIBIBYTES_64 + ":true",
    "64 KiB: no pair": "!" * KIBIBYTES_64,
    "64 KiB: commas": "," * KIBIBYTES_64,
    "64 KiB: prof last": "prof_gdump:false," * (KIBIBYTES_64 // 17) + "prof:true",
}


def _variants():
    """Lists of strings of one option, one list for each kind of value: one string of a list is the most useful."""
    yield from ([f"{key}:{value}" for value in BOOLEAN_VALUES] for key in BOOLEANS)
    yield from ([f"{key}:{value}" for value in values] for key, values in NUMBERS.items())
    yield from ([f"{key}:{value}" for value in NUMBER_VALUES] for key in NUMBERS)
    yield from ([f"{key}:{value}" for value in values + ["", "nonsense"]] for key, values in OTHER_NUMBERS.items())
    yield from ([f"{key}:{value}" for value in values] for key, values in WORDS.items())


def _single():
    """Strings that are unique in kind."""
    return [f"{key}:true" for key in UNKNOWN] + ["", *MALFORMED, *SEVERAL, *ABORTING, *CONFIRMING]


def _named(strings):
    """{name: string}; the name is the string itself unless that is long."""
    return {**{string: string for string in strings}, **LONG}


def all_strings():
    return _named([string for strings in _variants() for string in strings] + _single())


def some_strings(chance):
    """One of each kind, by `chance`, a random.Random."""
    return _named([chance.choice(strings) for strings in _variants()] + _single())
