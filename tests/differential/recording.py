# SPDX-License-Identifier: Apache-2.0
"""Runs a program once under jemalloc, heaptap or its guest, with every allocation recorded, and reads the dumps of its
processes.

Both runs have the same addresses (setarch -R), folder and arguments, and an environment of the same layout: the same
variables in the same order, with values of the same length.
"""

import glob
import os
import shutil

import guests
import harness
from paths import Paths

JEMALLOC = "jemalloc"
HEAPTAP = "heaptap"
# The program counts samples at known stacks itself.
COUNTED = "counted"
# libheaptap-guest.so over these hosts.
GUEST_OF_JEMALLOC = "guest of jemalloc"
GUEST_OF_GLIBC = "guest of glibc"
HOSTS = {GUEST_OF_JEMALLOC: "libjemalloc.so.2", GUEST_OF_GLIBC: None}
LIMIT_SECONDS = 500
# On a busy machine the collector loads tables of unwinding late, and stacks wait for them in the kernel: four times as many
# as by default.
ROOM = ("--map-size", f"raw-stacks={128 << 20}")
OPTIONS = "prof:true,prof_accum:true,lg_prof_sample:0,prof_final:true,prof_prefix:"


# Ways to change only the layout of a process: options of jemalloc that move its blocks, and a limit of the stack, below
# which libraries and blocks are mapped.
ELSEWHERE = (("retain:false,", 0x10003000), ("tcache:false,", 0x1A5A7000), ("dirty_decay_ms:0,", 0x4321B000))


# Starts a program from a shell script, through another program.
WRAPPER = ("sh", "-c", 'exec env "$@"', "sh")


class Recording:
    """programs: {name of the executable: Paths}, with all processes of a program together; collector: heaptap's PID;
    faults: errors of the recording itself, texts."""

    def __init__(self, programs, collector, faults):
        self.programs = programs
        self.collector = collector
        self.faults = faults


def environment(allocator, options, collector, folder, beside):
    """The variables that the allocator needs. `heaptap run` adds the last two itself, before what LD_PRELOAD has."""
    if allocator != JEMALLOC:
        # prof_prefix alone does nothing.
        return {"MALLOC_CONF": "prof_prefix:".ljust(len(options), "x"), "LD_PRELOAD": HOSTS.get(allocator)}
    other = harness.LIBRARY
    # Its guest was recorded before.
    if os.path.exists(guests.library(folder)):
        other = f"{guests.library(folder)}:libjemalloc.so.2"
    return {"MALLOC_CONF": options, "LD_PRELOAD": "libjemalloc.so.2".rjust(len(other), ":"),
            "HEAPTAP_CONF": f"collector:{collector},lg_prof_sample:0{',areas:true' if beside == COUNTED else ''}"}


def record(subject, allocator, folder, name, collector, elsewhere=("", 0), wrapper=(), beside=HEAPTAP):
    """Records one run. name: the name of its dumps, of the same length for all; collector: the PID of the heaptap to
    compare with, and beside: its kind; elsewhere: one of ELSEWHERE, for jemalloc; wrapper: a command that starts the program."""
    more, stack = elsewhere
    slashes = "/" * (1 + max(len(other) for other, _ in ELSEWHERE) - len(more))
    work, prefix = os.path.join(folder, "work"), folder + slashes + name
    shutil.rmtree(work, ignore_errors=True)
    os.mkdir(work)
    if subject.prepare:
        subject.prepare(work)
    command = [*wrapper, *(word.replace("{allocator}", HEAPTAP if allocator == COUNTED else allocator) for word in subject.command)]
    options = {"env": {**subject.environment, **environment(allocator, more + OPTIONS + prefix, collector, folder, beside)}, "cwd": work}
    if subject.stdin:
        options["stdin"] = open(os.path.join(work, subject.stdin), "rb")  # closed with the Process
    before = ["prlimit", f"--stack={stack}:"] if stack else []
    before += ["setarch", "-R"]
    if allocator != JEMALLOC:
        binary = guests.place(folder) if allocator in HOSTS else harness.HEAPTAP
        process = harness.Session(["run", "--books", "--exact", *([] if allocator == COUNTED else ["--report-each"]), *ROOM, "-o", prefix, "--", *command], folder, before=before,
                                  binary=binary, **options)
    else:
        process = harness.Process([*before, *command], folder, **options)
    status = process.wait(LIMIT_SECONDS)
    assert status == 0, f"{command} under {allocator}: status {status}\n{process.stderr()}"
    faults = []
    if allocator != JEMALLOC:
        try:
            process.check()
        except AssertionError as error:
            faults.append(str(error))
    programs = {}
    for file in sorted(glob.glob(f"{prefix}.*.heap")):
        paths = Paths.read(file, allocator != JEMALLOC, subject.rename, subject.is_own)
        if paths.program in programs:
            programs[paths.program].add(paths)
        else:
            programs[paths.program] = paths
    assert programs, f"{command} under {allocator}: no dumps\n{process.stderr()}"
    return Recording(programs, process.pid if allocator != JEMALLOC else collector, faults)
