# SPDX-License-Identifier: Apache-2.0
"""Threads in dumps: names (thread.prof.name, prof_sys_thread_name), per-thread activation (thread.prof.active,
prof.thread_active_init).

Everything is recorded; blocks of 64 KiB have no ready lists: no error bounds.
"""

import errno

import pytest

from allocators import KI, Jemalloc, assert_answers, thread_names
from symbols import live
from heap_v2 import Dump

BLOCK = 64 * KI
CONF = "prof:true,prof_prefix:thread,lg_prof_sample:0"


def by_name(allocator, name):
    """{thread's name: its live objects} from the header of a dump; None: threads without a name."""
    dump = Dump(allocator.path(name))
    objects = {}
    for uid, thread in thread_names(allocator.path(name)).items():
        objects[thread] = objects.get(thread, 0) + dump.threads[uid].objects
    return objects


def test_names_given_by_the_program(allocator):
    process = allocator.puppet(CONF)
    assert_answers(
        process, ("in 1 read string thread.prof.name", "0 "),
        ("in 1 write string thread.prof.name first", "0"), ("in 2 write string thread.prof.name second one", "0"),
        ("in 1 read string thread.prof.name", "0 first"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
        (f"in 2 keep 20 {BLOCK}", "kept 20"), ("write string prof.dump named.prof", "0"))
    objects = by_name(allocator, "named.prof")
    assert (objects["first"], objects["second one"]) == (10, 20)
    assert live(allocator.dump_named("named.prof"), "keep_blocks") == (30, 30 * BLOCK)


def test_a_name_that_changes(allocator):
    process = allocator.puppet(CONF)
    assert_answers(
        process, ("in 1 write string thread.prof.name before", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
        ("in 1 write string thread.prof.name after", "0"), ("write string prof.dump changed.prof", "0"))
    objects = by_name(allocator, "changed.prof")
    assert objects["after"] == 10
    assert "before" not in objects


@pytest.mark.without_bpf
def test_names_that_are_none(library):
    """Characters that are neither visible nor blank give an error, and the name stays. jemalloc 5.3.1 cuts long names to
    15 bytes, 5.3.0 does not: the test compares the first 15."""
    bad_name = errno.EFAULT if isinstance(library, Jemalloc) else errno.EINVAL  # of 5.3.0 and of 5.3.1
    process = library.puppet(CONF)
    assert_answers(
        process, ("in 1 write string thread.prof.name good", "0"),
        ("in 1 write string thread.prof.name b\x01d", str(bad_name)),
        ("in 1 read string thread.prof.name", "0 good"),
        ("in 1 swap string thread.prof.name other", f"{errno.EPERM} -"),
        ("in 1 write string thread.prof.name 0123456789abcdefghi", "0"))
    assert process.ask("in 1 read string thread.prof.name").startswith("0 0123456789abcde")


def test_names_of_the_system(allocator):
    """prof_sys_thread_name uses the thread's own name, and thread.prof.name cannot be written."""
    process = allocator.puppet(CONF + ",prof_sys_thread_name:true")
    assert_answers(
        process, ("in 1 name of-the-system", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
        ("in 1 write string thread.prof.name own", str(errno.ENOENT)),
        ("in 1 read string thread.prof.name", "0 of-the-system"), ("write string prof.dump system.prof", "0"))
    assert by_name(allocator, "system.prof")["of-the-system"] == 10


def test_inactive_thread(allocator):
    """thread.prof.active=false: allocations of this thread are not recorded, those of other threads are."""
    process = allocator.puppet(CONF)
    assert_answers(
        process, ("in 1 write string thread.prof.name quiet", "0"),
        ("in 1 swap bool thread.prof.active false", "0 true"),
        ("in 2 write string thread.prof.name loud", "0"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
        (f"in 2 keep 20 {BLOCK}", "kept 20"), ("write string prof.dump one.prof", "0"))
    assert live(allocator.dump_named("one.prof"), "keep_blocks") == (20, 20 * BLOCK)
    objects = by_name(allocator, "one.prof")
    assert (objects.get("quiet", 0), objects["loud"]) == (0, 20)
    assert_answers(
        process, ("in 1 swap bool thread.prof.active true", "0 false"), (f"in 1 keep 5 {BLOCK}", "kept 5"),
        ("write string prof.dump two.prof", "0"))
    objects = by_name(allocator, "two.prof")
    assert (objects["quiet"], objects["loud"]) == (5, 20)


def test_threads_begin_inactive(allocator):
    """prof_thread_active_init:false: threads start inactive; prof.thread_active_init affects later threads."""
    process = allocator.puppet(CONF + ",prof_thread_active_init:false")
    assert_answers(
        process, ("read bool opt.prof_thread_active_init", "0 false"),
        ("read bool thread.prof.active", "0 false"), ("in 1 read bool thread.prof.active", "0 false"),
        (f"keep 10 {BLOCK}", "kept 10"), (f"in 1 keep 10 {BLOCK}", "kept 10"),
        ("in 1 write bool thread.prof.active true", "0"), (f"in 1 keep 3 {BLOCK}", "kept 3"),
        ("swap bool prof.thread_active_init true", "0 false"), ("in 2 read bool thread.prof.active", "0 true"),
        (f"in 2 keep 4 {BLOCK}", "kept 4"), ("read bool thread.prof.active", "0 false"),
        ("write string prof.dump begin.prof", "0"))
    assert live(allocator.dump_named("begin.prof"), "keep_blocks") == (7, 7 * BLOCK)
