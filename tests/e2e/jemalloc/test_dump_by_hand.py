# SPDX-License-Identifier: Apache-2.0
"""mallctl("prof.dump"), with a name and without.

Everything is recorded (lg_prof_sample:0): no error bounds.
"""

import errno
import os

from allocators import KI, MI, assert_answers
from symbols import live

BLOCK = 64 * KI
CONF = "prof:true,prof_prefix:hand,lg_prof_sample:0"


def test_with_and_without_a_name(allocator):
    """A given name is used unchanged and takes no number; automatic names count from 0."""
    process = allocator.puppet(CONF)
    assert_answers(process, (f"keep 1 {BLOCK}", "kept 1"), ("call prof.dump", "0"),
                   (f"keep 1 {BLOCK}", "kept 1"), ("write string prof.dump given.prof", "0"),
                   (f"keep 1 {BLOCK}", "kept 1"), ("call prof.dump", "0"))
    process.ends()
    assert allocator.names_of_dumps() == [f"hand.{process.target_pid}.{i}.m{i}.heap" for i in (0, 1)]
    assert [live(dump.read(), "keep_blocks")[0] for dump in allocator.own_dumps()] == [1, 3]
    assert live(allocator.dump_named("given.prof"), "keep_blocks") == (2, 2 * BLOCK)


def test_prefix_by_mallctl(allocator):
    """prof.prefix: from the next dump on."""
    process = allocator.puppet(CONF)
    assert_answers(process, ("call prof.dump", "0"), ("write string prof.prefix other", "0"),
                   ("call prof.dump", "0"))
    pid = process.target_pid
    assert allocator.names_of_dumps() == [f"hand.{pid}.0.m0.heap", f"other.{pid}.1.m1.heap"]


def test_no_prefix(allocator):
    """prof_prefix: (empty): no automatic name, EFAULT; a given name works."""
    process = allocator.puppet("prof:true,prof_prefix:,lg_prof_sample:0")
    assert_answers(process, ("call prof.dump", str(errno.EFAULT)),
                   ("write string prof.dump given.prof", "0"))
    process.ends()
    assert allocator.names_of_dumps() == []
    allocator.dump_named("given.prof")


def test_an_existing_file_is_replaced(allocator):
    process = allocator.puppet(CONF)
    with open(allocator.path("given.prof"), "w", encoding="ascii") as file:
        file.write("x" * MI)
    assert_answers(process, (f"keep 1 {BLOCK}", "kept 1"), ("write string prof.dump given.prof", "0"))
    assert live(allocator.dump_named("given.prof"), "keep_blocks") == (1, BLOCK)
    assert os.path.getsize(allocator.path("given.prof")) < MI
