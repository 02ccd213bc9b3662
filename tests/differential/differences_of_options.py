# SPDX-License-Identifier: Apache-2.0
"""Why heaptap treats some option strings differently from Debian's jemalloc 5.3.0. In run_tables a name is an option string
or a source; trials are `status`, `stderr`, and mallctl names whose results the options changed; a missing result means no
change."""

import re

from tables import NO_RESULT, Known

# The text after "--" and the empty lines that belong to it.
FORMAT_ERROR = re.compile(r"(<jemalloc>: (?:Malformed conf string|Conf string ends with \w+))(?: -- .{0,64}?)?\n+(?=<|\Z)",
                          re.DOTALL)


def format_errors_once(text):
    """Removes the positions of format errors, and repeated messages except the last."""
    lines = FORMAT_ERROR.sub(r"\1\n", text).splitlines()
    return [line for i, line in enumerate(lines) if not FORMAT_ERROR.match(line + "\n") or line not in lines[i + 1:]]


def effects_confirmed(text):
    return text.replace("-- No effect in heaptap:", "-- Set conf value:")


def keys(*names):
    """A pattern for strings with one of these keys and any value."""
    return rf"({'|'.join(names)}):.*"


LATER = ("cache_oblivious", "prof_pid_namespace", "prof_bt_max", "experimental_tcache_gc", "disable_large_size_classes",
         "huge_arena_pac_thp", "hpa_hugify_sync", "experimental_hpa_start_huge_if_thp_always",
         "experimental_hpa_enforce_hugify", "hpa_purge_threshold", "hpa_min_purge_delay_ms", "hpa_hugify_style",
         "process_madvise_max_batch", "debug_double_free_max_scan", "calloc_madvise_threshold", "tcache_gc_interval_ms",
         "experimental_pac_sec_nshards", "experimental_pac_sec_max_alloc", "experimental_pac_sec_max_bytes",
         "hpa_purge_threshold_ratio", "tcache_ncached_max")
EARLIER = ("lg_chunk", "quarantine", "redzone", "lg_dirty_mult", "purge")
NOT_BUILT = ("xmalloc", "utrace", "lg_san_uaf_align", "log")
# Options for features that heaptap's heap lacks.
WITHOUT_MEANING = ("san_guard_small", "san_guard_large", "oversize_threshold", "slab_sizes", "bin_shards",
                   "narenas_ratio", "max_background_threads", "hpa_dirty_mult", "hpa_hugification_threshold_ratio",
                   "hpa_sec_max_alloc", "hpa_sec_max_bytes", "hpa_sec_bytes_after_flush", "hpa_sec_batch_fill_extra",
                   "abort_conf:true,hpa_sec_bytes_after_flush")

IN_5_3_1 = "5.3.1 has the option, 5.3.0 has not"
SOURCES_IN_5_3_1 = "5.3.1 tells by mallctl what its sources are, 5.3.0 does not"
HIDDEN = "Debian's library hides its malloc_conf_2_conf_harder, so a program cannot define it"
NO_COLLECTOR = "only a collector can write the dump, and none follows the process"
WEIGHTS = "weights of samples, which are 2^lg_prof_sample and more, are added up in 64 bits: 46 is the largest"
LEAK = "prof_leak implies prof_final, so prof_leak_error alone is no mistake"
NO_MEANING = "an option without a meaning in heaptap is taken in silence, whatever its value, and not clipped"
NO_AUTOMATIC_NAMES = "a program with more rights than its user has no prefix: it writes no dump that it did not name itself"
NARENAS = "jemalloc cuts narenas to 32 bits, and then to its limit; heaptap has one arena, and checks the range"
BUILT = "Debian's jemalloc is built without the option"

DIFFERENCES = [
    Known("jemalloc cuts a message off at 4 KiB; heaptap's is whole", name="64 KiB: one key", trial="stderr"),
    Known("a string that is no list of pairs is told once, with its place, as by 5.3.1; 5.3.0 tells it twice, without",
          trial="stderr", jemalloc=r".*(Malformed conf string|Conf string ends with).*", equal_after=format_errors_once),
    Known("5.3.0 takes every beginning of the word percpu_arena, even the empty one, for that option",
          name="::|:true|:|:,prof:true", trial="stderr"),
    Known("5.3.0 takes the empty word for percpu", name="percpu_arena:", trial="opt.percpu_arena|opt.narenas"),

    Known(SOURCES_IN_5_3_1, trial=r"opt\.malloc_conf\..*", jemalloc=NO_RESULT),
    Known(IN_5_3_1, name=".*" + keys(*LATER), trial="stderr", jemalloc="(.*\n)?<jemalloc>: Invalid conf pair: .*"),
    Known(IN_5_3_1, name=".*" + keys(*LATER), trial=r"opt\..*", jemalloc=NO_RESULT),
    Known(IN_5_3_1, name="abort_conf:true,prof_bt_max:10", trial="status|opt.*", jemalloc=f"-6|{NO_RESULT}"),
    Known("heaptap takes options of jemalloc 4 in silence", name=keys(*EARLIER), trial="stderr", heaptap=""),
    Known(BUILT, name=keys(*NOT_BUILT), trial="stderr", jemalloc="<jemalloc>: Invalid conf pair: .*"),
    Known(BUILT, name=keys("xmalloc"), trial="opt.xmalloc", jemalloc=NO_RESULT),
    Known(HIDDEN, name="harder symbol and variable", trial="stderr",
          jemalloc='.*malloc_conf #5 .*: ""\n', heaptap='.*malloc_conf #5 .*: "lg_prof_sample:6,harder:bad"\n'
          "<jemalloc>: -- Set conf value: lg_prof_sample:6\n<jemalloc>: Invalid conf pair: harder:bad\n"),
    Known(HIDDEN, name="harder symbol and variable", trial="opt.lg_prof_sample", jemalloc=".* 5", heaptap=".* 6"),

    Known(WEIGHTS, trial=r"opt\.lg_prof_sample|prof\.lg_sample", jemalloc=".* 63", heaptap=".* 46"),
    Known(NO_COLLECTOR, name="prof:true,(lg_prof_interval:0|prof_gdump:true)", trial="stderr", jemalloc="",
          heaptap="<heaptap>: no dump: no collector records this process; run .*\n"),
    Known(LEAK, name=".*prof_leak.*", trial="opt.prof_final", jemalloc=NO_RESULT, heaptap=".* true"),
    Known(LEAK, name=".*prof_leak_error:true.*", trial="stderr", heaptap="",
          jemalloc="<jemalloc>: prof_leak_error is set w/o prof_final.\n(<jemalloc>: Abort .*)?"),
    Known(LEAK, name="abort_conf:true,prof_leak_error:true", jemalloc=f"-6|{NO_RESULT}"),

    Known(NO_AUTOMATIC_NAMES, name="set-user-ID.*", trial=r"opt\.prof_prefix", jemalloc=NO_RESULT, heaptap='.* ""'),

    Known(NO_MEANING, name=keys(*WITHOUT_MEANING), trial="stderr", heaptap=""),
    Known(NO_MEANING, name=keys(*WITHOUT_MEANING), trial=r"opt\.(hpa_.*|oversize_threshold|max_background_threads)"),
    Known(NO_MEANING, trial="stderr", equal_after=effects_confirmed),
    Known(NARENAS, name=keys("narenas", "narenas_ratio"), trial="opt.narenas"),
    Known(NARENAS, name=keys("narenas"), trial="stderr", jemalloc="(<jemalloc>: Reducing narenas to limit .*)?"),
    Known("heaptap never takes memory from sbrk, and says so", trial="opt.dss"),
]
