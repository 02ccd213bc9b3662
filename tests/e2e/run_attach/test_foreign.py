# SPDX-License-Identifier: Apache-2.0
"""Another allocator that follows the otel_memory contract is recorded by its ELF notes, whatever its file is called.

The target's samples are every 16th block and stand for 16, so the estimates are exact. Error bound: rounding in the
dump.
"""

import signal

import pytest

import symbols
from harness import target


def start_foreign(lab):
    process = lab.program(target("foreign"), talks=True)
    process.target_pid = int(process.answer().split()[1])
    return process


def assert_kept(dump, objects, size):
    stacks = symbols.stacks_through(dump, "foreign_keep")
    estimate = dump.estimate(stacks)
    # A dump rounds to whole samples, by up to a half; readers scale them, objects also by the mean size.
    bound = sum(0.5 * dump.unbiased(stack.total).objects / stack.total.objects for stack in stacks) + 1
    assert estimate.bytes == pytest.approx(objects * size, abs=bound * size, rel=0)
    assert estimate.objects == pytest.approx(objects, abs=2 * bound, rel=0)
    assert dump.estimate(symbols.stacks_through(dump, "foreign_churn")) == (0, 0)


def test_attach(lab):
    """No preload, no control block, no heaptap probe."""
    process = start_foreign(lab)
    session = lab.attach(process.target_pid)
    process.ask("keep 32000 256")
    process.ask("churn 32000 64")
    session.signal(signal.SIGINT)
    session.ends()
    assert_kept(lab.only_dump(process.target_pid, "f"), 32000, 256)
    (entry,) = session.books()
    assert entry["samples_allocated"] == 4000
    assert entry["samples_freed"] == 2000
    process.ends()


def test_run(lab):
    """Under heaptap run the program has two sampled allocators: its own and the preloaded one."""
    session = lab.heaptap("run", "--", target("foreign"), talks=True)
    session.answer()
    session.ask("keep 32000 256")
    session.ends()
    assert_kept(lab.only_dump(kind="f"), 32000, 256)
