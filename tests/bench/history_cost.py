# SPDX-License-Identifier: Apache-2.0
"""What the daemon costs: processor time with 200 busy processes, with history and without, and the size of two weeks;
processor time with 50,000 samples a second."""

import os
import subprocess
import time

import harness

PROCESSES = 200
PATH_BITS = 10  # 1,024 call paths each
CHANGES = (1, 10)  # of each process, in a second
SETTLE_SECONDS = 150  # most paths are known then; with many changes, new ones still cost time
MEASURED_SECONDS = 60
SIMULATED = 20  # processes; the others would write the same again

BENCH = os.path.join(harness.BUILD, "tests", "bench")


def _descendants(pid):
    found = [pid]
    for one in found:
        for task in os.listdir(f"/proc/{one}/task"):
            with open(f"/proc/{one}/task/{task}/children", encoding="ascii") as children:
                found += map(int, children.read().split())
    return found


def _processor_seconds(pid):
    """Of all threads that live. Not from stat, which counts ticks, and misses most of what a process does between them."""
    total = 0
    for one in _descendants(pid):
        for task in os.listdir(f"/proc/{one}/task"):
            try:
                with open(f"/proc/{one}/task/{task}/schedstat", encoding="ascii") as file:
                    total += int(file.read().split()[0])
            except OSError:
                continue
    return total / 1e9


def share_of_a_core(folder, changes, *arguments, processes=PROCESSES, path_bits=PATH_BITS, settle=SETTLE_SECONDS):
    """The processor time of a daemon that records busy processes, as a share of a core."""
    state = os.path.join(folder, f"state{changes}{'-'.join(arguments)}")
    configuration = f"{state}.conf"
    open(configuration, "x", encoding="ascii").close()
    daemon = harness.Process([harness.HEAPTAP, "daemon", "--config", configuration, "--state-dir", state,
                              "--socket", f"{state}.s", "--pin-dir", "none", "--lg-sample", "10", "--budget", "0", *arguments], folder)
    daemon.wait_said("recording; ")
    busy = [subprocess.Popen([os.path.join(BENCH, "busy_paths"), str(path_bits), str(changes)], stdin=subprocess.PIPE,
                             env=dict(os.environ, LD_PRELOAD=harness.LIBRARY)) for _ in range(processes)]
    time.sleep(settle)
    before, begin = _processor_seconds(daemon.pid), time.monotonic()
    time.sleep(MEASURED_SECONDS)
    share = (_processor_seconds(daemon.pid) - before) / (time.monotonic() - begin)
    for process in busy:
        process.stdin.close()
        process.wait()
    daemon.signal(2)
    daemon.wait()
    return share


def collector(folder):
    """The same without history, where 8 processes have 50,000 samples a second."""
    # About half of the changes are allocations, of which nearly all are samples.
    return share_of_a_core(folder, 12500, "--history", "none", processes=8, path_bits=7, settle=15)


def size(folder, changes):
    """Bytes of two weeks of PROCESSES processes."""
    path = os.path.join(folder, f"size{changes}.db")
    run = subprocess.run([os.path.join(BENCH, "history_size"), path, str(SIMULATED), str(changes)], capture_output=True,
                         text=True, check=True)
    return int(run.stdout) * PROCESSES // SIMULATED


def measure(folder):
    """{changes in a second: {name: value}}"""
    return {changes: {"with": share_of_a_core(folder, changes), "without": share_of_a_core(folder, changes, "--history", "none"),
                      "bytes": size(folder, changes)} for changes in CHANGES}
