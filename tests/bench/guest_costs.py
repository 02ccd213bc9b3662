# SPDX-License-Identifier: Apache-2.0
"""What libheaptap-guest.so costs beside each bare host, in one run: a malloc+free pair, and real programs.

The programs run with a realtime priority (chrt --fifo), so that nothing else on the machine interrupts them, and the ways
take turns, so that a slow moment of the machine affects all. A process has one of two speeds about a nanosecond apart, at
random, so a pair's price is a mean over processes: the median would be the one speed or the other.
"""

import glob
import os
import re
import shutil
import statistics

import guests
import harness
from peers import BENCH, PEAK_RSS
from program_costs import PROGRAMS, prepare
from recording_costs import run_gigabyte
from table import print_table

FIRST = ["chrt", "--fifo", "10"]
FORWARD = os.path.join(BENCH, "forward.so")
# Of the package heaptrack.
HEAPTRACK = "/usr/lib/heaptrack/libheaptrack_preload.so"
# What lies before the host.
WAYS = {"bare": "", "a forwarding wrapper": FORWARD, "guest": harness.GUEST, "heaptrack": HEAPTRACK}
ROUNDS_OF_PAIRS = 25
ROUNDS_OF_PROGRAMS = 9
HOSTS_OF_PROGRAMS = ("glibc", "jemalloc")
ROUNDS_OF_SAMPLES = 3
BYTES_BETWEEN_SAMPLES = 2**19  # at the default rate


def pairs(folder):
    """{host: {way: [nanoseconds of a pair, one for each process]}}"""
    times = {host: {way: [] for way in WAYS} for host in guests.HOSTS}
    for _ in range(ROUNDS_OF_PAIRS):
        for host, library in guests.HOSTS.items():
            for way, before in WAYS.items():
                # heaptrack removes LD_PRELOAD from what its program starts.
                command = [*FIRST, "env", f"LD_PRELOAD={before} {library}", os.path.join(BENCH, "pairs")]
                process = harness.Process(command, folder, env={"DUMP_HEAPTRACK_OUTPUT": "/dev/null"})
                assert process.wait(300) == 0, process.stderr()
                times[host][way].append(float(process.stdout()))
    means = {host: {way: statistics.mean(one) for way, one in by_way.items()} for host, by_way in times.items()}

    def cell(host, way):
        one = times[host][way]
        return f"{means[host][way]:.1f} ({min(one):.1f}..{max(one):.1f})"

    rows = [(host, [*(cell(host, way) for way in WAYS), f"{means[host]['guest'] - means[host]['bare']:+.2f}",
                    f"{statistics.median(times[host]['guest']) - statistics.median(times[host]['bare']):+.2f}",
                    f"{min(times[host]['guest']) - min(times[host]['bare']):+.2f}"]) for host in guests.HOSTS]
    print_table(f"A malloc+free pair, not recorded: ns of processor time, mean of {ROUNDS_OF_PAIRS} (smallest..largest)",
                [*WAYS, "guest - bare", "of the medians", "of the smallest"], rows)
    return times


def seconds(command, folder, preload=None, recorder=None):
    """Seconds of processor time of a program, with what LD_PRELOAD has, or recorded by a heaptap that lies beside the
    guest."""
    costs = os.path.join(folder, "costs")
    command = [*FIRST, PEAK_RSS, costs, *command]
    if recorder is not None:
        command = [recorder, "run", "--report=never", "-o", "profile", "--", *command]
    process = harness.Process(command, folder, env={"LD_PRELOAD": preload})
    assert process.wait(300) == 0, f"{command}: {process.stderr()}"
    with open(costs, encoding="ascii") as file:
        return int(file.read().splitlines()[-1].split()[1]) / 1e6


def count_samples(command, folder, recorder):
    """The samples of a program and its children at the default rate."""
    def dumps():
        return glob.glob(os.path.join(folder, "profile.*.heap"))

    for path in dumps():
        os.remove(path)
    seconds(command, folder, recorder=recorder)
    samples = 0
    for path in dumps():
        with open(path, encoding="utf-8", errors="replace") as dump:
            samples += int(re.search(r"^  t\*: \d+: \d+ \[(\d+):", dump.read(), re.M).group(1))
    return samples


def recorded(folder, recorder):
    """{host: {program: {way: [seconds]}}}; recorded at the default rate."""
    present = {name: command for name, command in PROGRAMS.items() if shutil.which(command[0])}
    ways = {"bare": {}, "guest": {"guest": True}, "recorded": {"recorder": recorder}}
    times = {host: {name: {way: [] for way in ways} for name in present} for host in HOSTS_OF_PROGRAMS}
    for _ in range(ROUNDS_OF_PROGRAMS):
        for host in HOSTS_OF_PROGRAMS:
            for name, command in present.items():
                for way, options in ways.items():
                    preload = guests.preload(host)["LD_PRELOAD"] if "guest" in options else guests.HOSTS[host]
                    times[host][name][way].append(seconds(command, folder, preload, options.get("recorder")))
    for host, by_name in times.items():
        rows, sums = [], {}
        for name, by_way in by_name.items():
            bare = by_way["bare"]
            cells = [f"{min(bare):.3f}", f"{100 * (statistics.median(bare) / min(bare) - 1):.1f}"]
            for way in ("guest", "recorded"):
                for summary in (min, statistics.median):
                    sums.setdefault((way, summary), []).append(summary(by_way[way]) / summary(bare) - 1)
                    cells.append(f"{100 * sums[way, summary][-1]:+.2f}")
            rows.append((name, cells))
        rows.append(("mean", ["", "", *(f"{100 * statistics.fmean(one):+.2f}" for one in sums.values())]))
        print_table(f"Programs over {host}: seconds of processor time, and % more, of {ROUNDS_OF_PROGRAMS} runs",
                    ["bare, smallest", "its median %", "guest, smallest", "median", "recorded, smallest", "median"], rows)
    return times


def seconds_of_sample(folder, recorder):
    """What a sample and its free take in a program whose caches are its own."""
    found = []
    for _ in range(ROUNDS_OF_SAMPLES):
        loss, rate = run_gigabyte(recorder, folder)
        found.append(loss * BYTES_BETWEEN_SAMPLES / rate)
    return statistics.median(found)


def samples(folder, recorder, times):
    """{program: share of its time that its samples take}: decides where the times of equal runs differ by more."""
    each = seconds_of_sample(folder, recorder)
    shares, rows = {}, []
    for name, by_way in times.items():
        count = count_samples(PROGRAMS[name], folder, recorder)
        duration = statistics.median(by_way["bare"])
        shares[name] = count * each / duration
        rows.append((name, [f"{duration:.3f}", f"{count:,}", f"{100 * shares[name]:.2f}"]))
    rows.append(("mean", ["", "", f"{100 * statistics.fmean(shares.values()):.2f}"]))
    print_table(f"Programs recorded at the default rate: samples of {1e6 * each:.1f} us each",
                ["seconds", "samples", "% of the time"], rows)
    return shares


def guest(folder):
    nanoseconds = pairs(folder)
    prepare(folder)
    recorder = guests.place(folder)
    times = recorded(folder, recorder)
    return {"nanoseconds": nanoseconds, "seconds": times, "samples": samples(folder, recorder, times["glibc"])}
