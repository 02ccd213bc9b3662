# SPDX-License-Identifier: Apache-2.0
"""mallctl("prof.reset").

Everything is recorded; blocks of 64 KiB have no ready lists: no error bounds.
"""

import errno

from allocators import KI, Heaptap, assert_answers, thread_names
from symbols import live

BLOCK = 64 * KI
CONF = "prof:true,prof_prefix:reset,lg_prof_sample:0"


def test_earlier_samples_vanish(allocator):
    """Later dumps have only samples after the reset; frees of earlier samples change nothing."""
    process = allocator.puppet(CONF)
    assert_answers(
        process, (f"start 10 {BLOCK}", "started 10"), ("call prof.reset", "0"), (f"keep 20 {BLOCK}", "kept 20"),
        ("write string prof.dump one.prof", "0"), ("drop", "dropped 30"), ("write string prof.dump two.prof", "0"),
        (f"keep 5 {BLOCK}", "kept 5"), ("write string prof.dump three.prof", "0"))
    assert live(allocator.dump_named("one.prof"), "start_blocks") == (0, 0)
    assert live(allocator.dump_named("one.prof"), "keep_blocks") == (20, 20 * BLOCK)
    assert allocator.dump_named("one.prof").rate == 1
    assert live(allocator.dump_named("two.prof"), "keep_blocks") == (0, 0)
    assert live(allocator.dump_named("three.prof"), "keep_blocks") == (5, 5 * BLOCK)


def test_new_rate(allocator):
    """The rate appears in the dump's header and in prof.lg_sample. The maximum is 63 in jemalloc and 46 in heaptap, whose
    books take samples up to 2^47 bytes."""
    largest = "0 46" if isinstance(allocator, Heaptap) else "0 63"
    process = allocator.puppet(CONF)
    assert_answers(
        process, ("read size prof.lg_sample", "0 0"), (f"keep 10 {BLOCK}", "kept 10"),
        ("write size prof.reset 12", "0"), ("read size prof.lg_sample", "0 12"),
        ("read size opt.lg_prof_sample", "0 0"), ("write string prof.dump coarse.prof", "0"),
        ("write size prof.reset 99", "0"), ("read size prof.lg_sample", largest),
        ("write bool prof.reset true", str(errno.EINVAL)), ("read size prof.lg_sample", largest))
    dump = allocator.dump_named("coarse.prof")
    assert dump.rate == 1 << 12
    assert live(dump, "keep_blocks") == (0, 0)


def test_a_finer_rate_is_kept(allocator):
    """From practically no samples (2^63 bytes apart, in heaptap 2^46) to all of them. In jemalloc the new rate takes effect
    with a thread's next random distance, so the test uses a new thread."""
    process = allocator.puppet("prof:true,prof_prefix:reset,lg_prof_sample:63")
    assert_answers(
        process, (f"in 1 keep 10 {BLOCK}", "kept 10"), ("write size prof.reset 0", "0"),
        (f"in 2 keep 20 {BLOCK}", "kept 20"), ("write string prof.dump fine.prof", "0"))
    dump = allocator.dump_named("fine.prof")
    assert dump.rate == 1
    assert live(dump, "keep_blocks") == (20, 20 * BLOCK)


def test_names_outlive_a_reset(allocator):
    process = allocator.puppet(CONF)
    assert_answers(
        process, ("in 1 write string thread.prof.name lasting", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
        ("call prof.reset", "0"), ("in 1 read string thread.prof.name", "0 lasting"),
        (f"in 1 keep 5 {BLOCK}", "kept 5"), ("write string prof.dump after.prof", "0"))
    assert "lasting" in thread_names(allocator.path("after.prof")).values()
    assert live(allocator.dump_named("after.prof"), "keep_blocks") == (5, 5 * BLOCK)
