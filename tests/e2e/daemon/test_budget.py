# SPDX-License-Identifier: Apache-2.0
"""Back-pressure: what costs more than the budget is sampled more sparsely, and the estimates stay true.

Estimates, as in test_sampling_law.py: a block of s bytes is a sample with p = 1 - exp(-s / R), so its estimate has the
variance (1 - p) / p < R / s objects, or s R bytes: all blocks together have a standard error below sqrt(R bytes) bytes.
R changes while the program runs, so the bound is 4 standard errors at the sparsest rate that was ever said. The seed is
fixed; when rates change is not, so this fails in less than one run of 15000.
"""

import math
import re

from harness import target, wait_until

SIZE = 1024
RAISED = r"^heaptap: process {} \(\S+\) is sampled every 2\^(\d+) bytes now: {}"


def rates_said(daemon, pid):
    return [int(rate) for rate in re.findall(RAISED.format(pid, ""), daemon.process.stderr(), re.MULTILINE)]


def assert_true(daemon, entry, size_bytes):
    """The estimate of all that was allocated."""
    sparsest = max([entry["lg_sample"], *rates_said(daemon, entry["pid"])])
    bound = 4 * math.sqrt((1 << sparsest) * size_bytes)
    assert abs(entry["allocated_bytes"] - size_bytes) <= bound, (entry, size_bytes, sparsest)


def test_the_rate_is_raised_and_comes_back(lab, start_daemon):
    daemon = start_daemon("--lg-sample", "10", "--budget", "0.1")
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:10", "HEAPTAP_CONF": "prof_seed:1"})
    quiet = lab.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:10", "HEAPTAP_CONF": "prof_seed:2"})
    wait_until(lambda: len(daemon.processes()) == 2, "both are recorded")
    objects = 0

    def is_raised():
        nonlocal objects
        puppet.ask(f"churn 100000 {SIZE}")
        objects += 100000
        return daemon.processes()[puppet.target_pid]["lg_sample"] >= 13
    wait_until(is_raised, "its rate is raised")
    daemon.wait_said(RAISED.format(puppet.target_pid, "the budget is passed"))
    assert re.search(rf"(?m)^\s*{puppet.target_pid} +puppet .* (1[3-9]|[2-5]\d) ", daemon.client("list"))
    # So is an allocation at the new rate.
    puppet.ask(f"churn 500000 {SIZE}")
    objects += 500000
    entry = daemon.processes()[puppet.target_pid]
    assert_true(daemon, entry, objects * SIZE)
    assert daemon.processes()[quiet.target_pid]["lg_sample"] == 10
    # It does nothing more, and may be sampled as densely as at first.
    wait_until(lambda: daemon.processes()[puppet.target_pid]["lg_sample"] == 10, "its rate is what it was")
    daemon.wait_said(RAISED.format(puppet.target_pid, "what it costs is within the budget again"))
    assert rates_said(daemon, quiet.target_pid) == []


def run_paced(lab, daemon):
    program = lab.preloaded(target("paced"), 20000, 5,
                            env={"MALLOC_CONF": "lg_prof_sample:0", "HEAPTAP_CONF": "prof_seed:3"})
    program.ends()
    (entry,) = wait_until(daemon.ended, "it has ended")
    return entry, *map(int, program.stdout().splitlines()[1].split()[1:3])


def test_exact_has_no_budget(lab, start_daemon):
    daemon = start_daemon("--exact")
    entry, objects, size_bytes = run_paced(lab, daemon)
    assert (entry["lg_sample"], entry["samples"], entry["allocated_bytes"]) == (0, objects, size_bytes)
    assert rates_said(daemon, entry["pid"]) == []


def test_exact_with_a_budget(lab, start_daemon):
    daemon = start_daemon("--exact", "--budget", "0.1")
    entry, objects, size_bytes = run_paced(lab, daemon)
    assert entry["lg_sample"] > 0
    assert entry["samples"] < objects
    assert_true(daemon, entry, size_bytes)


def test_a_process_that_ran_before(lab, start_daemon):
    """Its cost counts, too."""
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:10"})
    daemon = start_daemon("--lg-sample", "10", "--budget", "0.1")

    def is_raised():
        puppet.ask(f"churn 100000 {SIZE}")
        return daemon.processes()[puppet.target_pid]["lg_sample"] > 10
    wait_until(is_raised, "its rate is raised")
