# SPDX-License-Identifier: Apache-2.0
"""Load: 50000 samples a second by 8 processes; and maps that are too small for it.

HEAPTAP_LOAD_SECONDS is how long (default 5); from 60 on the pace itself is asserted, too. Each block is a sample, in
exact recordings: what programs counted is compared digit for digit.
"""

import os
import re

import books
import symbols
from daemon import EXACT
from harness import LONG, PATIENCE_SECONDS, target, wait_until

SECONDS = int(os.environ.get("HEAPTAP_LOAD_SECONDS", "60" if LONG else "5"))
PROCESSES = 8
PER_SECOND = 50000
WHOLE_RUN_SECONDS = 60
SIZES = ("events=4096", "live=2048", "tallies=512", "stacks=512")


def paced(lab, *arguments):
    return lab.preloaded(target("paced"), *arguments, env=EXACT)


def counted(program):
    """(objects, bytes, live objects, live bytes, seconds) as the program counted."""
    words = program.stdout().splitlines()[1].split()
    return (*map(int, words[1:3]), *map(int, words[4:6]), float(words[7]))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid, name):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024


def wait_ended(daemon, programs):
    wait_until(lambda: len(daemon.ended()) >= len(programs), "all have ended")
    by_pid = {entry["pid"]: entry for entry in daemon.ended()}
    return [by_pid[program.pid] for program in programs]


def test_no_losses_at_default_sizes(lab, start_daemon, held):
    daemon = start_daemon("--exact", "--budget", "0", "--dump-at-exit", "always")
    collector = daemon.process.pid
    before = cpu_seconds(collector)
    memory_before = memory(collector, "VmRSS")
    programs = [paced(lab, PER_SECOND // PROCESSES, SECONDS, 1000, 6) for _ in range(PROCESSES)]
    wait_until(lambda: len(daemon.processes()) == PROCESSES, "all are recorded")
    assert [entry["losses"] for entry in daemon.processes().values()] == [{}] * PROCESSES
    kernel_memory = daemon.metrics()["heaptap_kernel_memory_bytes"]
    for program in programs:
        program.ends(seconds=SECONDS + PATIENCE_SECONDS)
    cpu = cpu_seconds(collector) - before
    pace = 0
    for program, entry in zip(programs, wait_ended(daemon, programs)):
        objects, size_bytes, live, live_bytes, seconds = counted(program)
        pace += objects / seconds
        assert entry["losses"] == {}
        dump = lab.only_dump(program.pid, "f")
        stacks = symbols.stacks_through(dump, "allocate_block")
        assert dump.warnings == []
        assert sum(stack.ever.objects for stack in stacks) == objects
        assert sum(stack.ever.bytes for stack in stacks) == size_bytes
        assert symbols.live(dump, "allocate_block") == (live, live_bytes)
    lost = {name: value for name, value in daemon.metrics().items() if "_lost_total" in name and value}
    assert lost == {}
    if SECONDS >= WHOLE_RUN_SECONDS:
        assert pace > 0.95 * PER_SECOND
    mi = 1 << 20
    held(f"samples lost of {PER_SECOND} a second for {SECONDS} s", 0, f"0 at {pace:.0f} a second")
    held("processor time of the collector", "none", f"{cpu:.2f} s")
    held("memory of the collector", "none", f"{memory_before / mi:.1f} MiB before, "
         f"{memory(collector, 'VmHWM') / mi:.1f} MiB at most; {kernel_memory / mi:.1f} MiB in the kernel")


def test_losses_are_counted_and_shown(lab, start_daemon):
    """Samples in the books and lost ones are together what the program counted."""
    sizes = [word for size in SIZES for word in ("--map-size", size)]
    allowed = ("live_full", "live_share", "tallies_full", "tallies_share", "stacks_full", "stack_collision",
               "events_full")
    daemon = start_daemon("--exact", "--budget", "0", "--dump-at-exit", "always", *sizes, losses_allowed=allowed)
    programs = [paced(lab, PER_SECOND // PROCESSES, SECONDS, 1000, 9) for _ in range(PROCESSES)]

    def losing():
        return sum(1 for entry in daemon.processes().values() if entry["losses"]) == PROCESSES
    wait_until(losing, "all have losses")
    pid = programs[0].pid
    assert re.search(rf"(?m)^\s*{pid} .*[1-9]\d* ", daemon.client("list"))
    shown = [name for name, value in daemon.metrics().items()
             if name.startswith(f'heaptap_events_lost_total{{pid="{pid}"') and value]
    assert shown, daemon.metrics()
    for program in programs:
        program.ends(seconds=SECONDS + PATIENCE_SECONDS)
    without_sample = ("stacks_full", "stack_collision", "events_full")
    for program, entry in zip(programs, wait_ended(daemon, programs)):
        objects, _, live, _, _ = counted(program)
        lost = sum(events for reason, events in entry["losses"].items() if reason not in without_sample)
        assert lost > 0
        assert entry["samples"] + lost == objects, entry
        assert entry["live_objects"] <= live
        dump = lab.only_dump(program.pid, "f")
        assert any("share" in warning or "full" in warning for warning in dump.warnings), dump.warnings
        (in_books,) = [one for one in daemon.books() if one["pid"] == program.pid]
        assert in_books["samples_allocated"] + lost == objects
        assert books.losses(in_books) == entry["losses"]
