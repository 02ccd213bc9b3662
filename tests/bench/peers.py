# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the allocator beside Debian's: each is a function(folder) that prints a table and returns its figures."""

import os
import statistics
import subprocess
import time

import guests
import harness
import programs
from table import print_table

BENCH = os.path.join(harness.BUILD, "tests", "bench")
PEAK_RSS = os.path.join(BENCH, "peak_rss")
# glibc is preloaded by name, too: redis-server is linked with jemalloc.
PRELOADS = {"glibc": "libc.so.6", "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4",
            "mimalloc": guests.MIMALLOC, "heaptap": harness.LIBRARY}
RECORDED = "heaptap recording"


ROUNDS_OF_MEMORY = 3


def memory(folder):
    def peak(name, allocator):
        """KiB of the largest process of one program with one allocator, for each command that the program starts."""
        file = os.path.join(folder, "peaks")
        open(file, "w", encoding="ascii").close()

        def start(command, **options):
            if allocator == RECORDED:
                wrapped = [f"{public}/heaptap", "run", "-o", f"{folder}/profile", "--", PEAK_RSS, file, *command]
            else:
                preload = PRELOADS[allocator].replace(harness.BUILD, public)
                wrapped = [PEAK_RSS, file, "env", f"LD_PRELOAD={preload}", *command]
            return harness.Process(wrapped, folder, **options)

        programs.run(name, folder, start)
        with open(file, encoding="ascii") as peaks:
            return max(int(line.split()[0]) for line in peaks)

    # Where every user may read it: PostgreSQL does not run as root.
    public = os.path.join(folder, "bin")
    os.mkdir(public)
    for path in (harness.HEAPTAP, harness.LIBRARY):
        harness.shutil.copy(path, public)
    allocators = [*PRELOADS, RECORDED]
    medians = {}
    for name in programs.PROGRAMS:
        rounds = [{allocator: peak(name, allocator) for allocator in allocators} for _ in range(ROUNDS_OF_MEMORY)]
        medians[name] = {allocator: statistics.median(one[allocator] for one in rounds) for allocator in allocators}
    print_table(f"Largest resident process, MiB, median of {ROUNDS_OF_MEMORY}", [*allocators, "heaptap / jemalloc"],
                [(name, [f"{peaks[allocator] / 1024:.1f}" for allocator in allocators] +
                  [f"{peaks['heaptap'] / peaks['jemalloc']:.2f}"]) for name, peaks in medians.items()])
    return {"kib": medians}


ROUNDS_OF_SUPPLY = 7
HELD_GIB = (1, 8, 48)
# The name of a step, and the arguments of tests/bench/supply.c: mode, size, number of steps.
SUPPLIES = {"malloc of 64 KiB": ("fresh", 65536, 20000), "malloc of 64 B": ("fresh", 64, 500000),
            "malloc of 512 B": ("fresh", 512, 200000),
            "free + malloc of 64 KiB": ("churn", 65536, 200000)}


def supply(folder):
    program = os.path.join(harness.BUILD, "tests", "bench", "supply")
    allocators = ("jemalloc", "heaptap")
    times = {name: {held: {allocator: [] for allocator in allocators} for held in HELD_GIB} for name in SUPPLIES}
    for _ in range(ROUNDS_OF_SUPPLY):
        for name, (mode, size, count) in SUPPLIES.items():
            for held in HELD_GIB:
                for allocator in allocators:
                    process = harness.Process([program, mode, str(size), str(held), str(count)], folder,
                                              env={"LD_PRELOAD": PRELOADS[allocator]})
                    assert process.wait(300) == 0, process.stderr()
                    times[name][held][allocator].append(float(process.stdout()))
    medians = {name: {held: {allocator: statistics.median(one) for allocator, one in by_allocator.items()}
                      for held, by_allocator in by_held.items()} for name, by_held in times.items()}
    rows = [(f"{name}, {allocator}",
             [f"{by_held[held][allocator]:.0f}" for held in HELD_GIB] +
             [f"{by_held[HELD_GIB[-1]][allocator] / by_held[HELD_GIB[0]][allocator]:.2f}"])
            for name, by_held in medians.items() for allocator in allocators]
    print_table(f"A block in a process that holds much: ns of processor time, median of {ROUNDS_OF_SUPPLY}",
                [*(f"{held} GiB" for held in HELD_GIB), f"{HELD_GIB[-1]} / {HELD_GIB[0]}"], rows)
    return {"nanoseconds": medians, "all": times}


ROUNDS_OF_LARGE = 5
LARGE = ("100", "600")  # arguments of tests/bench/large_blocks.c


def large(folder):
    """Blocks of 5 to 25 MiB that come and go, 100 of them at a time."""
    program = os.path.join(harness.BUILD, "tests", "bench", "large_blocks")
    runs = {allocator: [] for allocator in PRELOADS}
    for _ in range(ROUNDS_OF_LARGE):
        for allocator, preload in PRELOADS.items():
            begin = time.monotonic()
            process = subprocess.Popen([program, *LARGE], cwd=folder, env=dict(os.environ, LD_PRELOAD=preload))
            _, status, usage = os.wait4(process.pid, 0)
            assert status == 0
            runs[allocator].append((time.monotonic() - begin, usage.ru_minflt, usage.ru_maxrss / 2**10))
    medians = {allocator: [statistics.median(one[i] for one in each) for i in range(3)] for allocator, each in runs.items()}
    print_table(f"Large blocks that come and go: median of {ROUNDS_OF_LARGE}",
                ["seconds", "times glibc's", "page faults", "largest MiB"],
                [(allocator, [f"{seconds:.2f}", f"{seconds / medians['glibc'][0]:.2f}", f"{faults:.0f}", f"{mebibytes:.0f}"])
                 for allocator, (seconds, faults, mebibytes) in medians.items()])
    return {"medians": medians, "all": runs}


ROUNDS_OF_THREADS = 7
# Arguments of tests/bench/threads.c.
THREADS = {"frees by another thread": ("producer", "8000000"), "server (Larson)": ("server", "2000"),
           "short threads": ("short", "5000")}


def threads(folder):
    program = os.path.join(BENCH, "threads")
    ways = [*PRELOADS, RECORDED]
    times = {name: {way: [] for way in ways} for name in THREADS}
    for _ in range(ROUNDS_OF_THREADS):
        for name, arguments in THREADS.items():
            for way in ways:
                if way == RECORDED:
                    command, env = [harness.HEAPTAP, "run", "--report=never", "-o", "profile", "--"], {}
                else:
                    command, env = [], {"LD_PRELOAD": PRELOADS[way]}
                process = harness.Process([*command, program, *arguments], folder, env=env)
                assert process.wait(300) == 0, process.stderr()
                times[name][way].append(float(process.stdout()))
    medians = {name: {way: statistics.median(one) for way, one in by_way.items()} for name, by_way in times.items()}
    rows = []
    for name, by_way in medians.items():
        best = min(by_way[peer] for peer in PRELOADS if peer != "heaptap")
        rows.append((name, [f"{by_way[way]:.3f} ({min(times[name][way]):.3f}..{max(times[name][way]):.3f})" for way in ways] +
                     [f"{by_way['heaptap'] / best:.2f}"]))
    print_table(f"Threads: seconds, median of {ROUNDS_OF_THREADS} (smallest..largest)",
                [*ways, "heaptap / the best other"], rows)
    return {"seconds": medians, "all": times}


SECONDS_OF_REST = "10"
# Least size of a block, and the spread: arguments of tests/bench/returned.c.
SMALL = "16 to 1039 B"
RETURNED = {SMALL: ("16", "1024"), "4 to 64 KiB": ("4096", "61440"), "300 KB": ("300000", "1000"),
            "1.5 MB": ("1500000", "1000"), "20 MB": ("20000000", "1000")}
# Least size and spread of the first blocks and of the second.
PHASES = {"16 to 255 B, 256 to 2047 B": ("16", "240", "256", "1792"),
          "256 to 2047 B, 16 to 255 B": ("256", "1792", "16", "240"),
          "1 KiB, 16 to 255 B": ("1024", "1", "16", "240"),
          "1 to 4 KiB, 64 to 1087 B": ("1024", "3072", "64", "1024"),
          "4 to 16 KiB, 64 to 1087 B": ("4096", "12288", "64", "1024")}


def returned(folder):
    """Sizes, not times: the allocators run beside each other."""
    program = os.path.join(BENCH, "returned")

    def run_all(*arguments):
        running = {allocator: harness.Process([program, *arguments], folder, env={"LD_PRELOAD": preload})
                   for allocator, preload in PRELOADS.items()}
        for process in running.values():
            assert process.wait(120) == 0, process.stderr()
        return {allocator: [int(word) for word in process.stdout().split()] for allocator, process in running.items()}

    results = {}
    for name, sizes in RETURNED.items():
        for rest in ("idle", "busy", "asleep") if name == SMALL else ("idle", "busy"):
            results[f"{name}, {rest}"] = run_all(*sizes, rest, SECONDS_OF_REST)
    results[f"{SMALL}, malloc_trim"] = run_all(*RETURNED[SMALL], "trimmed", "0")
    print_table(f"A GiB of blocks is freed: % of it that is resident {SECONDS_OF_REST} s later", list(PRELOADS),
                [(name, [f"{100 * after / before:.1f}" for before, after in by_allocator.values()])
                 for name, by_allocator in results.items()])
    phases = {name: run_all("phases", *sizes, "1") for name, sizes in PHASES.items()}
    print_table("Nine tenths of 256 MiB of blocks are freed at random, then 230 MiB of another size allocated: resident MiB",
                list(PRELOADS),
                [(name, [str(resident) for _, resident in by_allocator.values()]) for name, by_allocator in phases.items()])
    return {"mebibytes": results, "phases": phases}
