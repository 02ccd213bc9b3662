# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a daemon at every step of taking over a recording that an earlier one left in the kernel. The third daemon
has all of it: what was recorded before, between and since, and the last dump of a process that ended in between.

Recording is exact; error bounds: none.
"""

import itertools
import os
import signal

import pytest

import inject
import symbols
from daemons import EXACT, Daemon
from harness import wait_until

KEPT_BYTES = 112  # the usable size of a block of 100 bytes
LOOP_SECONDS = 3600
# All kills up to this number, then some: a thread that reads the books makes some thousand calls.
EACH_UNTIL = 200
STEP_THEN = 40
# Parts of one loop, so that they can run beside each other.
PARTS = 4


def puppet_with(lab, daemon, blocks):
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask(f"keep {blocks} 100")
    assert_live(daemon, puppet, blocks)
    return puppet


def assert_live(daemon, puppet, blocks):
    assert daemon.processes()[puppet.pid]["live_objects"] == blocks


def state_files(daemon):
    """Those of the saved state that a daemon may write when it starts."""
    folder = os.path.join(daemon.state_folder, "recording")
    return [folder, *(os.path.join(folder, name) for name in os.listdir(folder))]


def killed_in(lab, call, number, files=None):
    """Three daemons: the first is killed at rest, the second at this call of its start, unless it makes fewer. Checks the
    third. Returns whether the second was killed."""
    daemon = Daemon(lab.folder, "--exact", "--dump-at-exit", "always")
    try:
        daemon.start()
        lives, ends = puppet_with(lab, daemon, 100), puppet_with(lab, daemon, 50)
        # What the third daemon needs for the last dump of the process that ends.
        wait_until(lambda: daemon.saved_pids() >= {lives.pid, ends.pid}, "what is mapped is in writing")
        daemon.kill()
        lives.ask("keep 10 100")
        ends.ends()

        second = daemon.launch(before=inject.killed_at(call, number, os.path.join(daemon.folder, "log"),
                                                       files(daemon) if files else ()))
        wait_until(lambda: "heaptap: recording; " in second.stderr() or not second.alive(), "it records or is killed")
        if second.alive():
            second.signal(signal.SIGTERM)
        was_killed = second.wait() == -signal.SIGKILL
        assert was_killed or second.popen.returncode == 0, second.stderr()
        lives.ask("keep 15 100")

        daemon.start()
        daemon.wait_said(r"^heaptap: took over a recording of \d+ process(es)?$")
        assert_live(daemon, lives, 125)
        # Two if the second was killed between the dump and the end of the books.
        for dump in daemon.wait_dumps(1, pid=ends.pid, kind="f"):
            assert symbols.live(dump.read(), "keep_blocks") == (50, 50 * KEPT_BYTES)
        lives.ask("drop")
        assert_live(daemon, lives, 0)
        lives.ask("keep 7 100")
        lives.ends()
        daemon.wait_ended(lives.pid)
        assert symbols.live(daemon.only_dump(lives.pid, kind="f"), "keep_blocks") == (7, 7 * KEPT_BYTES)
    finally:
        daemon.end()
    return was_killed


# The first call, in the middle, and shortly before the end of the start.
@pytest.mark.parametrize("number", (1, 100, 160))
def test_a_kill(lab, number):
    assert killed_in(lab, "bpf", number)


def test_a_kill_at_its_state(lab):
    assert killed_in(lab, "openat", 1, state_files)


def test_its_state_is_not_written_at_the_start(lab):
    """A kill before the writing of a file that is open already would lose what is saved."""
    assert not killed_in(lab, "write", 1, state_files)


@pytest.mark.slow
@pytest.mark.timeout(LOOP_SECONDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_kill_at_each_call_of_bpf(lab, held, part):
    numbers = itertools.chain(range(1 + part, EACH_UNTIL, PARTS),
                              itertools.count(EACH_UNTIL + part * STEP_THEN, PARTS * STEP_THEN))
    kills = sum(1 for _ in itertools.takewhile(lambda number: killed_in(lab, "bpf", number), numbers))
    held(f"kills at bpf, part {part + 1} of {PARTS}", "until none comes", f"{kills} kills")
    assert kills > 0


@pytest.mark.slow
@pytest.mark.timeout(LOOP_SECONDS)
@pytest.mark.parametrize("call", ("openat", "write", "newfstatat", "fcntl", "close", "unlinkat", "getdents64"))
def test_a_kill_at_each_call_for_its_state(lab, held, call):
    number = next(number for number in itertools.count(1) if not killed_in(lab, call, number, state_files))
    held(f"kills at {call} of the saved state", "until none comes", f"{number - 1} kills")
