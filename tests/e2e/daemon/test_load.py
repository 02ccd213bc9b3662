# SPDX-License-Identifier: Apache-2.0
"""Load: 8 processes in which every block is a sample, while the collector runs and while it gets no processor at all; and
maps that are too small for it.

Short, or a minute at 50000 samples a second with HEAPTAP_LONG=1 (HEAPTAP_LOAD_SECONDS sets another time), which also
checks the pace. Recording is exact: the counts equal those of the programs.
"""

import os
import re
import signal

import pytest

import books
import symbols
from daemons import EXACT
from harness import LONG, target, wait_until

# Only the long run needs a pace.
pytestmark = [pytest.mark.whole_machine] if LONG else []

PROCESSES = 8
PER_SECOND = 50000
SECONDS = int(os.environ.get("HEAPTAP_LOAD_SECONDS", "60" if LONG else "2"))
# Of a program while the collector is stopped; about 2 seconds.
STOPPED_ROUNDS = 2000
# For a shorter time the pace means nothing.
WHOLE_RUN_SECONDS = 60
MI = 1 << 20
TOO_SMALL = ("events=4096", "live=2048", "tallies=512", "stacks=512")
LOSSES = ("live_full", "live_share", "tallies_full", "tallies_share", "stacks_full", "stack_collision", "events_full")


def start_programs(lab, bits):
    """Starts programs that run until they are told to end. Their unwind tables are in the kernel beforehand: a collector
    that gets too little of a processor would not read them in time."""
    lab.preloaded(target("paced"), PER_SECOND // PROCESSES, 1, env=EXACT).ends()
    return [lab.preloaded(target("paced"), PER_SECOND // PROCESSES, 0, 1000, bits, env=EXACT) for _ in range(PROCESSES)]


def end_programs(daemon, programs):
    """Ends the programs; returns [(the program's counts, the daemon's entry)]."""
    for program in programs:
        program.signal(signal.SIGTERM)
    for program in programs:
        program.ends()
    return [(counted(program), daemon.wait_ended(program.pid)) for program in programs]


def counted(program):
    """(objects, bytes, live objects, live bytes, seconds)."""
    words = program.stdout().splitlines()[1].split()
    return (*map(int, words[1:3]), *map(int, words[4:6]), float(words[7]))


def assert_exact(daemon, counts, entry):
    """Nothing of a program is lost: neither samples nor their stacks."""
    objects, size_bytes, live, live_bytes, _ = counts
    assert entry["losses"] == {}
    dump = daemon.only_dump(entry["pid"], "f")
    stacks = symbols.stacks_through(dump, "allocate_block")
    assert dump.warnings == []
    assert (sum(stack.ever.objects for stack in stacks), sum(stack.ever.bytes for stack in stacks)) == (objects, size_bytes)
    assert symbols.live(dump, "allocate_block") == (live, live_bytes)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024


@pytest.mark.endurance
def test_no_losses_at_default_sizes(lab, start_daemon, held):
    daemon = start_daemon("--exact", "--budget", "0", "--dump-at-exit", "always")
    collector = daemon.process.pid
    cpu, memory_before = cpu_seconds(collector), memory(collector, "VmRSS")
    programs = start_programs(lab, bits=6)
    mine = {program.pid for program in programs}

    def is_enough():
        processes = daemon.listed()
        return mine <= set(processes) and sum(processes[pid]["samples"] for pid in mine) >= SECONDS * PER_SECOND
    wait_until(is_enough, f"{SECONDS * PER_SECOND} samples", 60 + 4 * SECONDS)
    kernel_memory = daemon.metrics().get("heaptap_kernel_memory_bytes", 0)
    pace = 0
    for counts, entry in end_programs(daemon, programs):
        pace += counts[0] / counts[-1]
        assert_exact(daemon, counts, entry)
    if SECONDS >= WHOLE_RUN_SECONDS:
        assert pace > 0.95 * PER_SECOND
    held(f"samples lost of {PER_SECOND} a second, {SECONDS} s", 0, f"0 at {pace:.0f} a second")
    held("processor time of the collector", "-", f"{cpu_seconds(collector) - cpu:.2f} s")
    held("memory of the collector", "-",
         f"{memory_before / MI:.1f} MiB before, {memory(collector, 'VmHWM') / MI:.1f} MiB at most")
    held("kernel memory", "-", f"{kernel_memory / MI:.1f} MiB")


def rounds(program):
    """How often it has slept, which is after each millisecond's blocks."""
    with open(f"/proc/{program.pid}/status", encoding="ascii") as file:
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", file.read(), re.MULTILINE).group(1))


def test_no_losses_while_the_collector_is_stopped(lab, start_daemon):
    """The kernel keeps the books of a load by itself, at default sizes."""
    daemon = start_daemon("--exact", "--budget", "0", "--dump-at-exit", "always")
    programs = start_programs(lab, bits=6)
    for program in programs:
        daemon.wait_recorded(program.pid)
    before = daemon.processes()
    daemon.process.signal(signal.SIGSTOP)
    enough = {program: rounds(program) + STOPPED_ROUNDS for program in programs}
    wait_until(lambda: all(rounds(program) >= enough[program] for program in programs), "many blocks are allocated")
    for program in programs:
        program.signal(signal.SIGTERM)
        program.ends()
    daemon.process.signal(signal.SIGCONT)
    for program in programs:
        counts, entry = counted(program), daemon.wait_ended(program.pid)
        assert counts[0] > before[program.pid]["samples"] + STOPPED_ROUNDS
        assert_exact(daemon, counts, entry)


def test_losses_are_counted_and_shown(lab, start_daemon):
    """Recorded and lost samples together equal the program's count; list, metrics and dumps show the number of lost
    ones."""
    sizes = [word for size in TOO_SMALL for word in ("--map-size", size)]
    daemon = start_daemon("--exact", "--budget", "0", "--dump-at-exit", "always", *sizes, losses_allowed=LOSSES)
    programs = start_programs(lab, bits=9)
    wait_until(lambda: all(daemon.listed().get(program.pid, {}).get("losses") for program in programs),
               "all have losses")
    pid = programs[0].pid
    assert int(daemon.row(pid)["LOSSES"]) > 0
    assert [name for name, value in daemon.metrics().items()
            if name.startswith(f'heaptap_events_lost_total{{pid="{pid}"') and value]
    for (objects, _, live, _, _), entry in end_programs(daemon, programs):
        lost = sum(events for reason, events in entry["losses"].items()
                   if reason not in ("stacks_full", "stack_collision", "events_full"))  # these reasons lose no sample
        assert lost > 0
        assert entry["samples"] + lost == objects, entry
        assert entry["live_objects"] <= live
        dump = daemon.only_dump(entry["pid"], "f")
        assert any("share" in warning or "full" in warning for warning in dump.warnings), dump.warnings
        (in_books,) = [one for one in daemon.books() if one["pid"] == entry["pid"]]
        assert in_books["samples_allocated"] + lost == objects
        assert books.losses(in_books) == entry["losses"]
