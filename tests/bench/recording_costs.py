# SPDX-License-Identifier: Apache-2.0
"""What recording costs the program: where every allocation is a sample, and at the default rate."""

import os
import statistics

import harness
from table import print_table

ROUNDS = 7
PAIRS = "100000"
# So many that the first samples, which are reported, do not count.
MANY_PAIRS = "1000000"
PAIRS_BETWEEN_MAPPINGS = "20000"
HEAPTRACK = "/usr/lib/heaptrack/libheaptrack_preload.so"  # of the package heaptrack


def recording(folder):
    ways = {
        "glibc, not recorded": ([], {}),
        "heaptap, not recorded": ([], {"LD_PRELOAD": harness.LIBRARY}),
        "jemalloc prof:true,lg_prof_sample:0": (
            [], {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": "prof:true,lg_prof_sample:0"}),
        "heaptrack": ([], {"LD_PRELOAD": HEAPTRACK, "DUMP_HEAPTRACK_OUTPUT": "/dev/null"}),
        "heaptap run --exact --report-each": ([harness.HEAPTAP, "run", "--exact", "--report-each", "--"], {}),
        "heaptap run --exact": ([harness.HEAPTAP, "run", "--exact", "--"], {}),
    }
    fast = {"glibc, not recorded", "heaptap, not recorded", "heaptap run --exact"}
    # Arguments of the program by column. A change of the mappings between two samples makes bpf/code.bpf.h's first cache useless.
    columns = {"2 frames": ["2", PAIRS], "18 frames": ["18", PAIRS], "64 frames": ["64", PAIRS],
               "30 frames, each after an mmap": ["30", PAIRS_BETWEEN_MAPPINGS, "mapping"]}
    times = {way: {column: [] for column in columns} for way in ways}
    for _ in range(ROUNDS):
        for column, arguments in columns.items():
            for way, (before, env) in ways.items():
                if way in fast:
                    arguments = [MANY_PAIRS if word == PAIRS else word for word in arguments]
                process = harness.Process([*before, harness.target("depth"), *arguments], folder, env=env)
                assert process.wait(120) == 0, process.stderr()
                times[way][column].append(float(process.stdout()))
    medians = {way: {column: statistics.median(times[way][column]) for column in columns} for way in ways}
    jemalloc, ours = medians["jemalloc prof:true,lg_prof_sample:0"], medians["heaptap run --exact --report-each"]
    heaptrack, counted = medians["heaptrack"], medians["heaptap run --exact"]
    ratios = {column: ours[column] / jemalloc[column] for column in columns}
    counted_ratios = {column: counted[column] / heaptrack[column] for column in columns}
    rows = [(way, [f"{medians[way][column]:.0f} ({min(times[way][column]):.0f}..{max(times[way][column]):.0f})"
                   for column in columns]) for way in ways]
    rows.append(("reported / jemalloc", [f"{ratios[column]:.2f}" for column in columns]))
    rows.append(("counted / heaptrack", [f"{counted_ratios[column]:.2f}" for column in columns]))
    print_table("Every allocation recorded: ns per malloc+free pair, median of "
                f"{ROUNDS} (smallest..largest)", list(columns), rows)
    return {"nanoseconds": medians, "all": times, "heaptap_to_jemalloc": ratios, "counted_to_heaptrack": counted_ratios}


BENCH = os.path.join(harness.BUILD, "tests", "bench")
GIGABYTE = os.path.join(BENCH, "gigabyte")
ROUNDS_OF_GIGABYTE = 5
SLICES = "300"  # of tests/bench/gigabyte.c: about 15 seconds


def _with_empty_program(folder):
    """The same while an eBPF program that does nothing takes the samples: no profiler with a probe can cost less."""
    listener = harness.Process([os.path.join(BENCH, "empty_program"), os.path.join(BENCH, "empty_program.bpf.o"),
                                harness.LIBRARY], folder, talks=True)
    listener.answer()
    result = _result(harness.Process([GIGABYTE, SLICES], folder,
                                     env={"LD_PRELOAD": harness.LIBRARY, "MALLOC_CONF": "prof:true,lg_prof_sample:19"}))
    listener.ends()
    return result


def _result(process):
    """The result of gigabyte.c: what share of its time it loses to sampling, and how many bytes it allocates in a second."""
    assert process.wait(120) == 0, process.stderr()
    without, recorded, rate = map(float, process.stdout().split())
    return recorded / without - 1, rate


def run_gigabyte(recorder, folder):
    command = [recorder, "run", "--report=never", "-o", "gigabyte", "--", GIGABYTE, SLICES]
    return _result(harness.Process(command, folder))


def gigabyte(folder):
    """The program compares slices of its own time, so that a slower machine slows both."""
    ways = {"heaptap run": lambda: run_gigabyte(harness.HEAPTAP, folder),
            "an empty eBPF program": lambda: _with_empty_program(folder)}
    losses, rates = {way: [] for way in ways}, []
    for _ in range(ROUNDS_OF_GIGABYTE):
        for way, start in ways.items():
            loss, rate = start()
            losses[way].append(loss)
            rates.append(rate)
    print_table(f"A program that allocates {statistics.median(rates) / 1e9:.2f} GB a second, at the default rate: median of "
                f"{ROUNDS_OF_GIGABYTE}", ["% lost", "smallest..largest"],
                [(way, [f"{100 * statistics.median(one):.2f}", f"{100 * min(one):.2f}..{100 * max(one):.2f}"])
                 for way, one in losses.items()])
    return {"loss": statistics.median(losses["heaptap run"]), "all": losses}
