# SPDX-License-Identifier: Apache-2.0
"""What it costs to record every allocation, beside heaptrack: many call paths in random order, and whole commands."""

import os
import shutil
import statistics
import subprocess
import time

import harness
from program_costs import PROGRAMS, prepare
from recording_costs import HEAPTRACK
from table import print_table

ROUNDS_OF_PATHS = 5
ROUNDS_OF_COMMANDS = 5
# (paths, frames); the last ones are more than fit into the caches of a processor.
PATHS = ((64, 16), (1024, 16), (16384, 16), (64, 64), (1024, 64), (16384, 64))
PAIRS = "300000"


def paths(folder):
    program = os.path.join(harness.BUILD, "tests", "bench", "paths")
    ways = {
        "glibc, not recorded": ([], {}),
        "heaptrack": ([], {"LD_PRELOAD": HEAPTRACK, "DUMP_HEAPTRACK_OUTPUT": "/dev/null"}),
        "heaptap run --exact": ([harness.HEAPTAP, "run", "--exact", "--report=never", "-o", "paths", "--"], {}),
    }
    times = {way: {case: [] for case in PATHS} for way in ways}
    for _ in range(ROUNDS_OF_PATHS):
        for case in PATHS:
            for way, (before, env) in ways.items():
                process = harness.Process([*before, program, *map(str, case), PAIRS], folder, env=env)
                assert process.wait(120) == 0, process.stderr()
                times[way][case].append(float(process.stdout()))
    medians = {way: [statistics.median(times[way][case]) for case in PATHS] for way in ways}
    ratios = [ours / theirs for ours, theirs in zip(medians["heaptap run --exact"], medians["heaptrack"])]
    columns = [f"{count} paths, {frames} frames" for count, frames in PATHS]
    print_table(f"Every allocation recorded, call paths in random order: ns per malloc+free pair, median of {ROUNDS_OF_PATHS}",
                columns, [*((way, [f"{one:.0f}" for one in medians[way]]) for way in ways),
                          ("heaptap / heaptrack", [f"{ratio:.2f}" for ratio in ratios])])
    return {"nanoseconds": {way: dict(zip(columns, medians[way])) for way in ways},
            "heaptap_to_heaptrack": dict(zip(columns, ratios))}


def _commands():
    compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    machine = subprocess.run(["g++", "-print-multiarch"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    found = {"cc1plus": [compiler, "-quiet", "-O1", "-std=c++20", "-D_GNU_SOURCE", "-imultiarch", machine, "program.cc", "-o",
                         "program.s"]}
    found |= {name: PROGRAMS[name] for name in ("python, JSON", "jq", "lua", "sqlite3")}
    if os.path.isdir(os.path.join(harness.ROOT, ".git")):
        found["git log"] = ["git", "-C", harness.ROOT, "--no-pager", "log", "--stat", "-n", "300"]
    return {name: command for name, command in found.items() if shutil.which(command[0])}


def _seconds(command, folder):
    """Of the whole command, with its start and its end."""
    begin = time.monotonic()
    process = harness.Process(command, folder)
    assert process.wait(300) == 0, f"{command}: {process.stderr()}"
    return time.monotonic() - begin


def commands(folder):
    prepare(folder)
    ways = {
        "glibc": [],
        "heaptrack --raw": ["heaptrack", "--raw", "-o", "heaptrack"],
        "heaptap run --exact": [harness.HEAPTAP, "run", "--exact", "--report=never", "-o", "exact", "--"],
    }
    found = _commands()
    seconds = {name: {way: [] for way in ways} for name in found}
    for _ in range(ROUNDS_OF_COMMANDS):
        for name, command in found.items():
            for way, before in ways.items():
                seconds[name][way].append(_seconds([*before, *command], folder))
    medians = {name: {way: statistics.median(one) for way, one in seconds[name].items()} for name in found}
    added = {name: {way: one[way] - one["glibc"] for way in ways} for name, one in medians.items()}
    ratios = {name: one["heaptap run --exact"] / one["heaptrack --raw"] for name, one in added.items()}
    print_table(f"Every allocation of a command recorded: seconds, median of {ROUNDS_OF_COMMANDS}",
                [*ways, "added by heaptrack", "added by heaptap", "heaptap / heaptrack"],
                [(name, [*(f"{medians[name][way]:.2f}" for way in ways), f"{added[name]['heaptrack --raw']:.2f}",
                         f"{added[name]['heaptap run --exact']:.2f}", f"{ratios[name]:.2f}"]) for name in found])
    return {"seconds": seconds, "added_to_heaptrack": ratios}
