# SPDX-License-Identifier: Apache-2.0
"""Why heaptap answers some mallctl calls differently from Debian's jemalloc 5.3.0. In run_tables a name is a mallctl name, a
trial is a way to call it, a result is an error code with the value written, and a title tells how the process was
started."""

import re

from tables import NO_RESULT, Known

# A name that does not exist has no MIB, so there are no trials by MIB.
ABSENT = rf"ENOENT.*|{NO_RESULT}"
ANY = r"\w+"
# Without a collector.
ALONE = "prof:true|details|thread names"


def but_for_the_value(result):
    return re.sub(r" (value|then) .*", "", result)


def one_of(*names):
    return "|".join(re.escape(name).replace("<any>", ANY) for name in names)


def value(reason, *names, **more):
    """Error codes, lengths and sizes are the same; only the value differs."""
    return Known(reason, name=one_of(*names), equal_after=but_for_the_value, **more)


def only_jemalloc(reason, *names):
    return Known(reason, name=one_of(*names), heaptap=ABSENT)


def only_heaptap(reason, *names):
    return Known(reason, name=one_of(*names), jemalloc=ABSENT)


LATER = "5.3.1 has the name, 5.3.0 has not"
ONE_ARENA = "heaptap makes one arena itself; jemalloc has four for each processor, and one for large blocks"
ALL_ARENAS = "the number of arenas stands for all of them, as in jemalloc: that is 1 here and 9 there"
CLASSES = "heaptap has 41 size classes in slabs, up to 32 KiB; jemalloc has 36, up to 14 KiB"
NO_HOOKS = "heaptap has no functions for pages that a program could replace"
NO_COLLECTOR = "only a collector can do it, and none follows the process"
NOT_BUILT = "Debian's jemalloc is built without the option"
BREAK = "heaptap never takes memory from sbrk, and says so"
DECAY = "heaptap returns pages after one second, jemalloc after ten"
INTERNAL = "it tells of jemalloc's own data structures, which heaptap does not have"

DIFFERENCES = [
    Known("jemalloc crashes where arguments are missing, or there is a number too many; heaptap has an error code",
          jemalloc="SIGSEGV", heaptap="E[A-Z]+.*"),
    Known("heaptap orders its names otherwise, so one number more than those of a partial path is another name",
          name="opt|experimental.hooks", trial="by numbers, one more: read"),
    Known("heaptap takes numbers in names only as decimal digits; jemalloc takes what strtoumax takes",
          name=r"arena\.(0x|\+0|0x0| 0)\.initialized", heaptap=ABSENT),

    only_heaptap(LATER, "config.prof_frameptr", "approximate_stats.active", "arena.0.name", "arena.1.name",
                 "thread.tcache.max",
                 "experimental.hooks.prof_sample", "experimental.hooks.prof_sample_free", "opt.prof_pid_namespace",
                 "opt.experimental_tcache_gc", "opt.disable_large_size_classes", "opt.huge_arena_pac_thp",
                 "opt.malloc_conf.<any>", "opt.process_madvise_max_batch", "opt.prof_bt_max",
                 "opt.debug_double_free_max_scan"),
    Known("names of threads are cut to 15 bytes, and wrong ones give EINVAL, as in 5.3.1; 5.3.0 keeps all, and has EFAULT",
          name=r"thread\.prof\.name", trial='write "(a name longer than fifteen bytes|line.*feed|null)"',
          heaptap='EINVAL then ""|0 then "a name longer t"'),
    only_heaptap(NOT_BUILT, "opt.xmalloc"),
    value(NOT_BUILT, "config.xmalloc"),
    only_jemalloc("heaptap has no option of that name", "opt.utrace", "opt.lg_san_uaf_align"),

    value("no thread of heaptap's waits for a lock that is counted, so what is told of locks is 0",
          "stats.mutexes.<any>.<any>", "stats.arenas.0.mutexes.<any>.<any>", "stats.arenas.0.bins.7.mutex.<any>"),
    value(ONE_ARENA, "opt.narenas", "arenas.narenas"),
    only_heaptap(ALL_ARENAS, "stats.arenas.1.nthreads", "stats.arenas.1.bins.<any>.nmalloc"),
    value(ALL_ARENAS, "arena.1.initialized"),
    Known(ALL_ARENAS, name=r"arena\.1\.dss", jemalloc="EFAULT.*"),
    Known(ALL_ARENAS, name=r"arena\.1\.dss", jemalloc="EINVAL.*", heaptap='EINVAL.* then "disabled"'),
    value(BREAK, "opt.dss", "stats.arenas.0.dss", "arena.0.dss", "arena.4096.dss"),
    Known(BREAK, name=r"arena\.(0|4096)\.dss", trial='write "primary"', jemalloc="0 .*", heaptap="EFAULT .*"),
    only_jemalloc("heaptap has no arena for large blocks", "arena.<any>.oversize_threshold"),
    Known("jemalloc crashes where the hooks for extents are null; heaptap has its own then", name=r"arenas\.create",
          trial="read and write", jemalloc="SIGSEGV", heaptap="0 .*"),
    Known(NO_HOOKS, name=r"arena\.(0|1)\.extent_hooks", heaptap="(EFAULT|EINVAL).*"),
    Known("heaptap's address space always grows by one chunk", name=r"arena\.0\.retain_grow_limit", heaptap="EFAULT.*"),

    value(CLASSES, "arenas.nbins", "arenas.nlextents", "arenas.bin.36.size", "arenas.bin.36.slab_size",
          "arenas.bin.36.nregs", "arenas.lextent.<any>.size"),
    only_heaptap(CLASSES, "arenas.bin.40.size", "arenas.bin.40.slab_size", "arenas.bin.40.nregs",
                 "stats.arenas.0.bins.40.nmalloc", "prof.stats.bins.36.live", "prof.stats.bins.36.accum"),
    only_jemalloc(CLASSES, *(f"arenas.lextent.{i}.size" for i in (191, 195, 196)),
                  *(f"stats.arenas.<any>.lextents.{i}.<any>" for i in (191, 195, 196)),
                  "prof.stats.lextents.191.live", "prof.stats.lextents.191.accum"),
    value(DECAY, "opt.dirty_decay_ms", "arena.0.dirty_decay_ms", "arenas.dirty_decay_ms",
          "stats.arenas.0.dirty_decay_ms"),
    Known("no threads at most is no maximum: refused, as by jemalloc after 5.3.0", name="max_background_threads",
          trial='write "0"', jemalloc="0 .*", heaptap="EINVAL .*"),
    value("heaptap does not spread large blocks over cache lines", "config.cache_oblivious", "opt.cache_oblivious"),
    value("nothing unwinds in the process", "config.prof_libgcc"),
    value(INTERNAL, "stats.arenas.<any>.internal"),
    value("heaptap keeps no large blocks ready, so there is nothing to flush", "stats.arenas.<any>.large.nflushes"),
    only_jemalloc(INTERNAL, "experimental.arenas.0.pactivep", "experimental.arenas_create_ext",
                  "experimental.batch_alloc", "experimental.hooks.install", "experimental.hooks.remove",
                  "experimental.hooks.safety_check_abort", "experimental.thread.activity_callback",
                  "experimental.utilization.query", "experimental.utilization.batch_query"),

    Known("nothing unwinds in the process, so there is no function for it at first; one can be set, not taken away",
          name=r"experimental\.hooks\.prof_backtrace", jemalloc="0.*", heaptap=".* value 0|EINVAL then not 0"),
    Known(NO_COLLECTOR, name=r"prof\.dump|experimental\.prof_recent\.alloc_dump", jemalloc="0", heaptap="EFAULT",
          title=ALONE),
    value("samples are taken only when a collector follows the process", "prof.stats.bins.7.live",
          "prof.stats.bins.7.accum", title=ALONE),
    value("heaptap asks the system for the thread's name when it is read; jemalloc when it samples",
          "thread.prof.name", title="thread names"),
]
