# SPDX-License-Identifier: Apache-2.0
"""Threads hold frees back: they are in every profile nevertheless, whichever way the process ends, and each free belongs
to the right object.

Recording is exact; error bounds: none. Older kernels throw the memory of a process away before its end can be noticed:
there the dump says what is missing.
"""

import signal

import pytest

from books import HAS_MEMORY_AT_EXIT
from harness import target
from symbols import live

BYTES = 112  # the usable size of a block of 100 bytes
THREADS = 4
FREED = 30
KEPT = THREADS * 70
MISSING = "ends without the latest frees"
ALLOCATED_BY_CHILD = (10, 10 * BYTES)
# What a thread holds back at most.
PENDING = 63


def of_keep_blocks(dump):
    return live(dump.read(), "keep_blocks")


def assert_complete(session, dump, is_complete):
    objects, size = of_keep_blocks(dump)
    assert size == objects * BYTES
    if is_complete:
        assert objects == KEPT
        assert MISSING not in session.stderr()
    else:
        # The frees of at most one slot of each thread are missing.
        assert KEPT < objects <= KEPT + THREADS * FREED
        assert MISSING in session.stderr()


def test_killed(lab):
    session = lab.heaptap("run", "--exact", "--", target("pending"), "killed")
    session.ends(128 + signal.SIGKILL)
    (dump,) = lab.dumps(kind="f")
    assert_complete(session, dump, HAS_MEMORY_AT_EXIT)


def test_exit_without_handlers(lab):
    session = lab.heaptap("run", "--exact", "--", target("pending"), "_exit")
    session.ends()
    (dump,) = lab.dumps(kind="f")
    assert_complete(session, dump, HAS_MEMORY_AT_EXIT)


def test_exit(lab):
    session = lab.heaptap("run", "--exact", "--", target("pending"), "exit")
    session.ends()
    (dump,) = lab.dumps(kind="f")
    assert_complete(session, dump, True)


def test_a_living_process(lab):
    """Its threads are idle, so heaptap itself looks at what they hold back."""
    session = lab.heaptap("run", "--exact", "--", target("pending"), "idle", talks=True)
    assert session.answer() == "ready"
    session.signal(signal.SIGUSR1)
    session.wait_said(r"^heaptap: wrote .*\.m0\.heap")
    (dump,) = lab.dumps(kind="m")
    assert of_keep_blocks(dump) == (KEPT, KEPT * BYTES)


@pytest.mark.parametrize("way", ("fork", "raw"))
def test_children(lab, way):
    """A child does not have the page that a probe's call leads to, with or without the library's knowledge."""
    session = lab.heaptap("run", "--exact", "--", target("pending"), way)
    session.ends()
    parent, child = sorted(of_keep_blocks(dump) for dump in lab.dumps(kind="f"))
    assert parent == (0, 0)
    if HAS_MEMORY_AT_EXIT:
        assert child == ALLOCATED_BY_CHILD
    else:
        objects, size = child
        assert ALLOCATED_BY_CHILD[0] <= objects <= ALLOCATED_BY_CHILD[0] + PENDING and size == objects * BYTES


def test_vfork(lab):
    """The child shares the books of its parent."""
    session = lab.heaptap("run", "--exact", "--", target("pending"), "vfork")
    session.ends()
    (dump,) = lab.dumps(kind="f")
    assert of_keep_blocks(dump) == ALLOCATED_BY_CHILD


def test_system_calls_refused(lab):
    """A probe's call makes a system call that no filter of the program knows."""
    session = lab.heaptap("run", "--exact", "--", target("pending"), "seccomp")
    session.ends()
    (dump,) = lab.dumps(kind="f")
    assert of_keep_blocks(dump) == ALLOCATED_BY_CHILD
