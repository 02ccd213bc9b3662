# SPDX-License-Identifier: Apache-2.0
"""200 short-lived processes a second, half of them killed: each has its final numbers, and nothing of them stays.

HEAPTAP_LONG=1: 30 s at that pace; otherwise shorter and faster, and the collector is stopped meanwhile: how much of a
processor it gets decides nothing. Recording is exact; error bounds: none.
"""

import os
import re
import signal

import pytest

from harness import LIBRARY, LONG, PATIENCE_SECONDS, target, wait_until

# Only the long run needs a pace.
pytestmark = [pytest.mark.whole_machine] if LONG else []

COMMAND = "short_lived"
PER_SECOND = 200
# The number of processes in seconds at the full pace; the short run is faster.
COUNT = PER_SECOND * (30 if LONG else 4)
PACE = PER_SECOND if LONG else 3 * PER_SECOND
BLOCK_BYTES = 64
# The number of processes whose ends a stopped collector misses.
AT_ONCE = PER_SECOND * 4

# Other processes on the machine are not measured.
ARGUMENTS = ("--exact", "--dump-at-exit", "never", "--rule", f"comm={COMMAND} record=on", "--rule", "record=off")

# The daemon remembers this many ended processes.
MAX_ENDED = 1000

# Memory that the allocators of the collector and of the kernel may keep at times.
SLACK_BYTES = 8 << 20


def resources(daemon):
    """The memory of the collector and of its maps, its open files, its CPU time."""
    proc = f"/proc/{daemon.process.pid}"
    with open(f"{proc}/status", encoding="ascii") as file:
        resident = int(re.search(r"^VmRSS:\s+(\d+) kB$", file.read(), re.MULTILINE).group(1)) << 10
    with open(f"{proc}/stat", encoding="ascii") as file:
        words = file.read().rsplit(") ", 1)[1].split()
    return {"resident": resident, "kernel": daemon.metrics().get("heaptap_kernel_memory_bytes", 0),
            "files": len(os.listdir(f"{proc}/fd")),
            "seconds": (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")}


def read_truth(program):
    """(PID, status, allocated, live) of each process. The restarts of a collector on a busy machine can use up all PIDs, so that
    two processes have the same one."""
    return [tuple(map(int, line.split())) for line in program.stdout().splitlines()[:-1]]


def in_books(truth):
    """As `numbers`, sorted."""
    return sorted((pid, allocated, live, live * BLOCK_BYTES) for pid, _, allocated, live in truth)


def numbers(entry):
    return entry["pid"], entry["samples_allocated"], entry["live_entries"], entry["live_bytes"]


def burst(lab, daemon, count, stopped=False):
    """Runs processes, each of which must have its numbers, also if the collector is stopped until the last one has ended.
    Returns the truth and the seconds."""
    before = len(daemon.books())
    if stopped:
        daemon.process.signal(signal.SIGSTOP)
    program = lab.program(target(COMMAND), PACE, count, LIBRARY)
    program.ends(seconds=4 * PATIENCE_SECONDS)
    daemon.process.signal(signal.SIGCONT)
    truth = read_truth(program)
    assert len(truth) == count

    def closed():
        return [numbers(entry) for entry in daemon.books()[before:] if entry["name"] == COMMAND]
    wait_until(lambda: len(closed()) >= count, f"{count} more processes are closed", 2 * PATIENCE_SECONDS)
    assert sorted(closed()) == in_books(truth)
    return truth, float(program.stdout().split()[-1])


@pytest.mark.endurance
def test_each_has_them_though_the_collector_is_killed(lab, start_daemon):
    """Processes that begin or end without a collector, too. A killed collector's successor may print the same books again."""
    daemon = start_daemon(*ARGUMENTS)
    program = lab.program(target(COMMAND), PER_SECOND, COUNT, LIBRARY)
    while program.alive():
        closed = len(daemon.books())
        wait_until(lambda before=closed: len(daemon.books()) > before or not program.alive(), "some are closed")
        daemon.restart()
    program.ends()
    truth = in_books(read_truth(program))

    def closed():
        return {numbers(entry) for entry in daemon.books() if entry["name"] == COMMAND}
    wait_until(lambda: closed() >= set(truth), "each is closed")
    assert 0 not in {entry["pid"] for entry in daemon.books()}
    assert closed() == set(truth)


@pytest.mark.endurance
def test_each_has_its_final_numbers(lab, start_daemon, held):
    daemon = start_daemon(*ARGUMENTS)
    burst(lab, daemon, MAX_ENDED + PER_SECOND)  # by now the collector has all that it keeps of processes
    burst(lab, daemon, AT_ONCE, stopped=True)  # and has had as many at once as it ever will
    before = resources(daemon)
    truth, seconds = burst(lab, daemon, COUNT, stopped=not LONG)
    after = resources(daemon)
    ended = daemon.ended()
    assert len(ended) == MAX_ENDED
    mine = [entry for entry in ended
            if (entry["pid"], entry["status"], entry["allocated_objects"], entry["live_objects"]) in truth]
    assert len(mine) == min(COUNT, MAX_ENDED)
    for entry in mine:
        assert entry["live_bytes"] == entry["live_objects"] * BLOCK_BYTES
        assert entry["losses"] == {}
    assert COMMAND not in [entry["command"] for entry in daemon.listed().values()]
    assert after["resident"] < before["resident"] + SLACK_BYTES
    assert after["kernel"] < before["kernel"] + SLACK_BYTES
    held("short-lived processes without their final numbers", 0, f"0 of {COUNT}, {COUNT / seconds:.0f} a second")
    for what in ("resident", "kernel"):
        held(f"growth of the collector's {what} memory over {COUNT} processes", f"{SLACK_BYTES >> 20} MiB",
             f"{(after[what] - before[what]) / (1 << 20):.1f} MiB")
    held("processor time of the collector", "none", f"{after['seconds'] - before['seconds']:.2f} s")
    # A client's connection may be about to close.
    wait_until(lambda: resources(daemon)["files"] <= before["files"], "its files are closed")
