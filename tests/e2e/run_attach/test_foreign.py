# SPDX-License-Identifier: Apache-2.0
"""Another allocator that follows the otel_memory contract is recorded by its ELF notes, whatever its file is called.

The target's samples are every 16th block and stand for 16, so the estimates are exact. Error bound: rounding in the
dump.
"""

import signal

import pytest

import guests
import symbols
from harness import target


def start_foreign(lab, env=None):
    process = lab.program(target("foreign"), talks=True, env=env)
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


def test_another_rate(lab):
    """The collector knows nothing of the producer's rate, which even changes: each sample has its weight."""
    process = start_foreign(lab)
    session = lab.attach(process.target_pid, "--lg-sample", "12")
    for every, blocks in ((16, 16000), (1, 500), (100, 20000)):
        process.ask(f"rate {every} 0")
        process.ask(f"keep {blocks} 256")
    session.signal(signal.SIGINT)
    session.ends()
    (entry,) = session.books()
    assert entry["samples_allocated"] == 1000 + 500 + 200
    assert entry["allocated_bytes"] == 256 * (16000 + 500 + 20000)
    assert entry["allocated_objects"] == 16000 + 500 + 20000
    process.ends()


def test_frees_of_unknown_pointers(lab):
    """Frees of blocks that are no samples, and of nothing, are not losses: the collector may have come later."""
    process = start_foreign(lab)
    process.ask("keep 1600 256")
    session = lab.attach(process.target_pid)
    process.ask("unknown 5000 64")
    process.ask("keep 32000 256")
    process.ask("unknown 5000 64")
    session.signal(signal.SIGINT)
    session.ends()
    (entry,) = session.books()
    assert (entry["samples_allocated"], entry["samples_freed"]) == (2000, 0)
    assert_kept(lab.only_dump(process.target_pid, "f"), 32000, 256)
    process.ends()


def test_no_control_block(lab):
    """A dump on demand and the last one need none."""
    process = start_foreign(lab)
    session = lab.attach(process.target_pid)
    process.ask("keep 16000 256")
    session.signal(signal.SIGUSR1)
    session.wait_said(r"^heaptap: wrote ")
    process.ask("keep 16000 256")
    session.signal(signal.SIGINT)
    session.ends()
    assert_kept(lab.only_dump(process.target_pid, "f"), 32000, 256)
    process.ends()


@pytest.mark.parametrize("host", ("glibc", "jemalloc"))
def test_beside_the_guest(lab, host):
    """Two producers in one process: the program's own allocator, and malloc with the guest. Each has its rate."""
    process = start_foreign(lab, env=guests.preload(host))
    session = lab.attach(process.target_pid, "--exact")
    # The thread notices that it is recorded.
    process.ask("malloc 5000 100")
    process.ask("keep 32000 256")
    process.ask("malloc 1000 200")
    session.signal(signal.SIGINT)
    session.ends()
    dump = lab.only_dump(process.target_pid, "f")
    assert dump.rate == 1
    objects, size = symbols.live(dump, "foreign_keep")
    assert symbols.live(dump, "foreign_malloc")[0] >= 1000
    (entry,) = session.books()
    assert (objects, size) != (0, 0)
    assert entry["allocated_bytes"] >= 32000 * 256 + 1000 * 200
    process.ends()
