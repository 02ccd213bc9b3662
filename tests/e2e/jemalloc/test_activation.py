# SPDX-License-Identifier: Apache-2.0
"""prof:true,prof_active:false, and prof.active written by the program; and the recipe "dump, activate, wait,
deactivate, dump, compare" of jemalloc's documents.

Everything is recorded (lg_prof_sample:0). Blocks of 64 KiB and more have no ready lists, so activation takes effect with
the next one: no error bounds, except where a test says so.
"""

from allocators import KI, assert_answers, jeprof_table
from symbols import live
from harness import target

BLOCK = 64 * KI

# heaptap: a thread notices a change when its ready blocks of that size are used up.
READY_BLOCKS = 16
CONF = "prof:true,prof_active:false,prof_prefix:act,lg_prof_sample:0"


def test_only_the_steady_state(lab, allocator):
    """The dump has all allocations after the activation, and none before it."""
    process = allocator.puppet(CONF)
    assert_answers(process, ("read bool opt.prof_active", "0 false"), (f"start 100 {BLOCK}", "started 100"),
                   ("start 1000 100", "started 1000"), ("swap bool prof.active true", "0 false"),
                   (f"keep 50 {BLOCK}", "kept 50"), ("write string prof.dump steady.prof", "0"))
    dump = allocator.dump_named("steady.prof")
    assert live(dump, "start_blocks") == (0, 0)
    assert live(dump, "keep_blocks") == (50, 50 * BLOCK)
    rows, _ = jeprof_table(lab, target("puppet"), allocator.path("steady.prof"))
    assert rows["keep_blocks"] == (50 * BLOCK, 50 * BLOCK)
    assert "start_blocks" not in rows


def test_small_blocks(allocator):
    """The same with 1000 blocks of 1 KiB in each of three phases: up to 16 ready blocks follow the change late."""
    process = allocator.puppet(CONF)
    assert_answers(process, ("start 1000 1024", "started 1000"), ("write bool prof.active true", "0"),
                   ("keep 1000 1024", "kept 1000"), ("write bool prof.active false", "0"),
                   ("start 1000 1024", "started 1000"), ("write string prof.dump small.prof", "0"))
    dump = allocator.dump_named("small.prof")
    assert 1000 - READY_BLOCKS <= live(dump, "keep_blocks")[0]
    assert live(dump, "start_blocks")[0] <= READY_BLOCKS


def test_activate_wait_deactivate_dump_compare(lab, allocator):
    """The wiki's recipe; instead of 30 seconds the test waits for the end of the work."""
    process = allocator.puppet(CONF)
    assert_answers(
        process, (f"start 20 {BLOCK}", "started 20"), ("call prof.dump", "0"),
        ("swap bool prof.active true", "0 false"), (f"keep 30 {BLOCK}", "kept 30"),
        (f"churn 1000 {BLOCK}", "churned 1000"), ("swap bool prof.active false", "0 true"),
        (f"start 40 {BLOCK}", "started 40"), ("call prof.dump", "0"))
    first, second = [dump.path for dump in allocator.own_dumps(kind="m")]
    rows, growth = jeprof_table(lab, f"--base={first}", target("puppet"), second)
    assert growth == 30 * BLOCK
    assert rows["keep_blocks"] == (30 * BLOCK, 30 * BLOCK)
    assert "start_blocks" not in rows
    assert "churn_blocks" not in rows


def test_deactivated_blocks_are_still_taken_off(allocator):
    """Recorded blocks that are freed while profiling is off are missing from the next dump."""
    process = allocator.puppet(CONF)
    assert_answers(process, ("write bool prof.active true", "0"), (f"keep 30 {BLOCK}", "kept 30"),
                   ("write bool prof.active false", "0"), ("drop", "dropped 30"),
                   ("write string prof.dump gone.prof", "0"))
    assert live(allocator.dump_named("gone.prof"), "keep_blocks") == (0, 0)
