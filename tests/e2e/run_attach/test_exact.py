# SPDX-License-Identifier: Apache-2.0
"""--exact with eight threads that free each other's objects: every call path's totals are right.

Error bound: none.
"""

import re

import symbols
from harness import PATIENCE_SECONDS, target


def test_eight_threads_free_each_other_s_objects(lab):
    session = lab.heaptap("run", "--exact", "--", target("exact_threads"), "20000")
    session.ends(seconds=4 * PATIENCE_SECONDS)
    dump = lab.only_dump()
    assert dump.rate == 1
    printed = re.findall(r"^(\w+) (\d+) (\d+) (\d+)$", session.stdout(), re.MULTILINE)
    assert len(printed) == 3
    allocated = 0
    for path, objects, size, ever in printed:
        assert symbols.live(dump, path) == (int(objects), int(size)), path
        allocated += int(ever)
    assert allocated == 8 * 20000
    (entry,) = session.books()
    # Plus the allocations of pthread_create() for each thread.
    assert entry["samples_allocated"] == allocated + 8


def test_one_thread_one_line(lab):
    """Live blocks of eight threads appear under eight threads, whose lines add up to the totals."""
    session = lab.heaptap("run", "--exact", "--", target("exact_threads"), "2000")
    session.ends()
    dump = lab.only_dump()
    workers = set()
    for stack in symbols.stacks_through(dump, "work"):
        workers |= {thread for thread, count in stack.threads.items() if count.objects > 0}
        assert sum(count.objects for count in stack.threads.values()) == stack.total.objects
        assert sum(count.bytes for count in stack.threads.values()) == stack.total.bytes
    assert len(workers) == 8
    assert workers <= set(dump.threads)
