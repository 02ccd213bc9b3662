# SPDX-License-Identifier: Apache-2.0
"""The budget: processes that cost more are sampled more sparsely, and the estimates stay right.

Estimates, as in test_sampling_law.py: a block of s bytes is a sample with p = 1 - exp(-s / R), so its estimate has the
variance (1 - p) / p < R / s objects, or s R bytes: all blocks together have a standard error below sqrt(R bytes) bytes.
R changes while the program runs, so the bound is 6.2 standard errors at the sparsest rate seen. The seed is fixed, but the
times of rate changes are not, so this fails in less than one run of 10^9.
"""

import collections
import contextlib
import math
import signal
import threading
import time

import pytest

import control
from harness import LIBRARY, target, wait_until

# Processor time decides.
pytestmark = pytest.mark.whole_machine

SIZE = 1024
RAISED = r"^heaptap: process {} \(\S+\) is now sampled every 2\^(\d+) bytes: {}"
# No processes of other checkouts are recorded: they would count.
DAEMON = ["--budget", "0.5", "--rule", "comm=dear lg-sample=10", "--rule", "comm=cheap lg-sample=10",
          "--rule", "comm=paced exact", "--rule", "record=off"]


class Rates:
    """The rates of processes over time, by PID, from their control blocks. A raised rate stays for ten seconds at least
    (userspace/targets/rates.cc), so none is missed. The daemon, which may be busy, is not asked."""

    def __init__(self):
        self.seen = collections.defaultdict(set)
        self._pids = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def add(self, process):
        self._pids.add(process.pid)
        return process

    def _watch(self):
        while not self._end.wait(0.2):
            for pid in tuple(self._pids):
                # It has ended, or is not recorded yet.
                with contextlib.suppress(OSError, AssertionError):
                    rate = control.control(pid, LIBRARY).collector_lg_sample
                    if rate != control.NO_RATE:
                        self.seen[pid].add(rate)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def is_true(rates, entry, size_bytes):
    """Checks the estimate of all allocations."""
    sparsest = max([entry["lg_sample"], *rates.seen[entry["pid"]]])
    bound = 6.2 * math.sqrt((1 << sparsest) * size_bytes)
    return abs(entry["allocated_bytes"] - size_bytes) <= bound


def assert_true(rates, entry, size_bytes):
    assert is_true(rates, entry, size_bytes), (entry, size_bytes, rates.seen[entry["pid"]])


def seeded_puppet(lab, name, seed):
    return lab.preloaded_puppet(name, env={"MALLOC_CONF": "lg_prof_sample:10", "HEAPTAP_CONF": f"prof_seed:{seed}"})


@pytest.fixture
def rates():
    with Rates() as watched:
        yield watched


def test_the_rate_is_raised_and_comes_back(lab, daemon, rates):
    begin = time.monotonic()
    puppet, cheap = (seeded_puppet(lab, name, seed) for name, seed in (("dear", 1), ("cheap", 2)))
    wait_until(lambda: len(daemon.processes()) == 2, "both are recorded")
    for process in (puppet, cheap):
        # Until the rules are applied, a process has the densest rate of all rules: here that of the rule for "paced".
        wait_until(lambda: control.control(process.pid, LIBRARY).collector_lg_sample == 10, "it has the rate of its rule")
        rates.add(process)
    objects = 0

    def is_raised():
        nonlocal objects
        puppet.ask(f"churn 100000 {SIZE}")
        objects += 100000
        return daemon.processes()[puppet.pid]["lg_sample"] >= 12
    wait_until(is_raised, "its rate is raised")
    daemon.wait_said(RAISED.format(puppet.pid, "recording exceeds the budget"))
    assert int(daemon.row(puppet.pid)["LG"]) >= 12
    # Allocations at the new rate are right, too.
    puppet.ask(f"churn 500000 {SIZE}")
    objects += 500000
    # A daemon that is slow to sum up shows older sums for a while.
    wait_until(lambda: is_true(rates, daemon.processes()[puppet.pid], objects * SIZE), "its estimate is right")
    assert daemon.processes()[cheap.pid]["lg_sample"] == 10
    # The process is idle, so its first rate comes back.
    wait_until(lambda: daemon.processes()[puppet.pid]["lg_sample"] == 10, "its rate is what it was")
    assert rates.seen[cheap.pid] == {10}
    # At most one line a minute reports all these changes, and one the first.
    lines = [line for line in daemon.process.lines() if " is now sampled every " in line]
    assert len(lines) <= 2 + (time.monotonic() - begin) // 60, lines


def end_paced(program):
    """Ends the program; returns the objects and bytes that it allocated."""
    program.signal(signal.SIGTERM)
    program.ends()
    return map(int, program.stdout().splitlines()[1].split()[1:3])


def start_paced(lab, seconds=0):
    return lab.preloaded(target("paced"), 20000, seconds,
                         env={"MALLOC_CONF": "lg_prof_sample:0", "HEAPTAP_CONF": "prof_seed:3"})


def test_exact_with_a_budget(lab, daemon, rates):
    program = rates.add(start_paced(lab))

    def is_thinned():
        entry = daemon.processes().get(program.pid)
        return entry and entry["samples"] < 0.9 * entry["allocated_objects"]
    wait_until(is_thinned, "blocks are left out")
    objects, size_bytes = end_paced(program)
    entry = daemon.wait_ended(program.pid)
    assert max(rates.seen[program.pid]) > 0
    assert entry["samples"] < objects
    assert_true(rates, entry, size_bytes)


def test_exact_has_no_budget(lab, start_daemon):
    """Without --budget, --exact keeps its rate; here for three checks of the daemon."""
    daemon = start_daemon("--exact")
    program = start_paced(lab, seconds=3)
    program.ends()
    objects, size_bytes = map(int, program.stdout().splitlines()[1].split()[1:3])
    entry = daemon.wait_ended(program.pid)
    assert (entry["lg_sample"], entry["samples"], entry["allocated_bytes"]) == (0, objects, size_bytes)
    assert " is now sampled every " not in daemon.process.stderr()


def test_a_process_that_ran_before(lab, start_daemon):
    """Its cost counts, too."""
    puppet = seeded_puppet(lab, "dear", 1)
    daemon = start_daemon(*DAEMON)

    def is_raised():
        puppet.ask(f"churn 100000 {SIZE}")
        return daemon.wait_recorded(puppet.pid)["lg_sample"] > 10
    wait_until(is_raised, "its rate is raised")
