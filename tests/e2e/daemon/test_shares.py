# SPDX-License-Identifier: Apache-2.0
"""Shares: a process that fills the kernel's maps does not take the room of other processes.

Recording is exact; error bounds: none.
"""

import os
import signal

import pytest

from daemons import EXACT
from harness import target, wait_until
from heap_v2 import Dump
from symbols import stacks_through

LIVE, TALLIES = 4096, 1024
DAEMON = ["--exact", "--map-size", f"live={LIVE}", "--map-size", f"tallies={TALLIES}", "--map-size", "stacks=65536",
          "--rule", "comm=bounded max-live=100", "--rule", "comm=narrow max-contexts=8"]
LOSSES_ALLOWED = ("live_share", "tallies_share")

# The share of the map from which a process's tallies are folded when their threads have ended.
FOLD_AT = 0.25


@pytest.fixture(scope="module")
def _with_tables():
    return set()


@pytest.fixture(autouse=True)
def tables(lab, daemon, _with_tables):
    """The daemon has the unwind tables of all programs here. On a busy machine a program goes on without them after two
    seconds, and then each of its stacks takes a tally until the daemon has read them."""
    for command in (("puppet",), ("paced", 1000, 0, 1000, 1), ("short_threads",)):
        if command in _with_tables:
            continue
        program = lab.preloaded(target(command[0]), *command[1:], talks=True, env=EXACT)
        daemon.wait_recorded(program.pid)
        daemon.dump(program.pid, lab.path("tables"))  # waits for them
        program.signal(signal.SIGKILL)
        program.wait()
        wait_until(lambda program=program: program.pid not in daemon.processes(), "its books are closed")
        _with_tables.add(command)
    for dump in daemon.dumps():
        os.unlink(dump.path)
    # The books of other tests' programs are deleted, so the maps have room.
    daemon.settle()


def recorded_puppet(lab, daemon, name=None):
    puppet = lab.preloaded_puppet(name, env=EXACT)
    daemon.wait_recorded(puppet.pid)
    return puppet


def wait_losing(daemon, pid, reason):
    wait_until(lambda: daemon.wait_recorded(pid)["losses"].get(reason), f"{pid} has losses for {reason}")


def test_live_objects_of_a_quiet_process(lab, daemon):
    """A noisy process may have as many as are still free: half of the map. A second one gets a quarter; a quiet process
    loses nothing, before or after them."""
    early = recorded_puppet(lab, daemon)
    early.ask("keep 100 100")
    noisy = recorded_puppet(lab, daemon)
    noisy.ask("keep 50000 100")
    other = recorded_puppet(lab, daemon)
    other.ask("keep 50000 100")
    late = recorded_puppet(lab, daemon)
    late.ask("keep 100 100")
    early.ask("keep 100 100")
    processes = daemon.processes()
    for puppet, kept in ((early, 200), (late, 100)):
        entry = processes[puppet.pid]
        assert (entry["live_objects"], entry["losses"]) == (kept, {})
    for puppet, least in ((noisy, 1900), (other, 900)):
        entry = processes[puppet.pid]
        assert least <= entry["live_objects"] <= LIVE // 2
        assert entry["live_objects"] + entry["losses"]["live_share"] == 50000
    # Freed room is available to others: the map is swept when a process finds no room.
    noisy.ask("drop")
    other.ask("drop")

    def has_room():
        lost = daemon.processes()[late.pid]["losses"]
        late.ask("keep 100 200")
        return daemon.processes()[late.pid]["losses"] == lost
    wait_until(has_room, "there is room")
    before = daemon.processes()[late.pid]
    late.ask("keep 600 200")
    entry = daemon.processes()[late.pid]
    assert entry["live_objects"] == before["live_objects"] + 600
    assert entry["losses"] == before["losses"]


def test_contexts_of_a_quiet_process(lab, daemon):
    """The same with the map of tallies: the noisy one has 4096 call paths, the quiet one 16."""
    noisy = lab.preloaded(target("paced"), 20000, 0, 1000, 12, env=EXACT)
    wait_losing(daemon, noisy.pid, "tallies_share")
    quiet = lab.preloaded(target("paced"), 1000, 1, 1000, 4, env=EXACT)
    quiet.ends()
    (_, objects, _, _, live, _, _, _) = quiet.stdout().splitlines()[1].split()
    noisy.signal(signal.SIGTERM)
    noisy.ends()
    entry = daemon.wait_ended(quiet.pid)
    assert (entry["samples"], entry["live_objects"], entry["losses"]) == (int(objects), int(live), {})
    entry = daemon.wait_ended(noisy.pid)
    assert entry["contexts"] <= TALLIES // 2
    allocated = int(noisy.stdout().splitlines()[1].split()[1])
    assert entry["samples"] + sum(entry["losses"].values()) == allocated


def test_by_rule(lab, daemon):
    puppet = recorded_puppet(lab, daemon, "bounded")
    puppet.ask("keep 500 100")
    entry = daemon.processes()[puppet.pid]
    assert (entry["live_objects"], entry["losses"]) == (100, {"live_share": 400})
    # Its rule holds from now on; what it allocated before would count too.
    narrow = recorded_puppet(lab, daemon, "narrow")
    assert narrow.ask("deep 30 100") == "kept 30"
    entry = daemon.processes()[narrow.pid]
    assert entry["contexts"] == 8
    assert entry["samples"] + entry["losses"]["tallies_share"] >= 30


@pytest.mark.product
def test_tallies_of_threads_that_have_ended(lab, daemon):
    """1200 threads, one after the other, with a tally each, in a map of 1024: they are folded into one, and the totals are
    right. The bound leaves a hundred more, far from half of the map: a stack that the collector finishes takes its own
    tally."""
    program = lab.preloaded(target("short_threads"), talks=True, env=EXACT)
    program.answer()
    path = lab.path("snapshot")
    # One thread first: until its tables are loaded, each sample has a stack, and so a tally, of its own.
    program.ask("1")
    daemon.settle()

    def is_folded():
        daemon.dump(program.pid, path)
        return len(Dump(path).threads) <= FOLD_AT * TALLIES
    for _ in range(12):
        objects, size_bytes = map(int, program.ask("100").split()[1:])
        wait_until(is_folded, "tallies of ended threads are one")
    assert daemon.processes()[program.pid]["losses"] == {}
    ever = [stack.ever for stack in stacks_through(Dump(path), "allocate_in_thread")]
    assert (sum(count.objects for count in ever), sum(count.bytes for count in ever)) == (objects, size_bytes)
