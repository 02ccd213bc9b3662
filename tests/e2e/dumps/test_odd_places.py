# SPDX-License-Identifier: Apache-2.0
"""Dumps in unusual places: from many threads at once, in a forked child, in signal handlers."""

import os
import signal
import tempfile

import pytest

from allocators import assert_answers, said
from dumping import BLOCK, assert_goes_on, begin
from harness import wait_until
from symbols import live


def test_64_threads_at_once(heaptap):
    """The threads wait for one another, and each gets its dump."""
    process = begin(heaptap)
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
    word, slowest, *errors = process.ask("storm 64 storm.prof").split()
    assert (word, errors) == ("storm", ["0"] * 64)
    for number in range(64):
        assert live(heaptap.dump_named(f"storm.prof.{number}"), "keep_blocks") == (3, 3 * BLOCK)
    assert said(process) == []


def test_in_a_forked_child(lab, heaptap):
    """The dump has the child's PID in its name and only the child's allocations: its books begin with the fork."""
    process = begin(heaptap)
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"), ("call prof.dump", "0"))
    child, error = process.ask(f"fork keep 2 {BLOCK};call prof.dump").split()
    assert error == "0", process.stderr()
    (dump,) = lab.dumps(pid=int(child), kind="m")
    assert live(dump.read(), "keep_blocks") == (2, 2 * BLOCK)
    assert_answers(process, ("call prof.dump", "0"))
    assert [dump.number for dump in lab.dumps(pid=process.target_pid, kind="m")] == [0, 1]
    assert_goes_on(heaptap, process, 0)


def test_in_a_signal_handler(heaptap):
    process = begin(heaptap)
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"), ("handle write string prof.dump raised.prof", "0"))
    assert live(heaptap.dump_named("raised.prof"), "keep_blocks") == (3, 3 * BLOCK)
    assert_goes_on(heaptap, process, 0)


@pytest.mark.parametrize("size", (100, 20000, 1 << 22))
def test_in_a_handler_that_interrupts_the_allocator(heaptap, size):
    """20 times, anywhere in the allocator: a dump needs nothing of it, so each is written, and the heap stays whole."""
    process = begin(heaptap)
    assert process.ask(f"interrupt 20 {size}").split() == ["0"] * 20
    assert_goes_on(heaptap, process, 0)


def shared_memory(cgroup):
    """The bytes of files in memory that are charged to the cgroup."""
    with open(os.path.join(cgroup.folder, "memory.stat"), encoding="ascii") as file:
        return int(dict(line.split() for line in file)["shmem"])


def test_in_memory(lab, new_cgroup):
    """The memory of the file is charged to the process that asks, not to the collector."""
    cgroup = new_cgroup()
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true"}, preexec_fn=cgroup.enter)
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask(f"deep 1000 {BLOCK}")
    before = shared_memory(cgroup)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "dump")
        assert puppet.ask(f"write string prof.dump {path}") == "0", puppet.stderr()
        size = os.stat(path).st_size
        assert size > 0
        wait_until(lambda: shared_memory(cgroup) - before >= size, f"{size} bytes are charged")
    session.signal(signal.SIGINT)
    session.ends()
