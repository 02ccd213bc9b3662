# SPDX-License-Identifier: Apache-2.0
"""Back-pressure: what costs more than the budget is sampled more sparsely, and the estimates stay true.

Estimates, as in test_sampling_law.py: a block of s bytes is a sample with p = 1 - exp(-s / R), so its estimate has the
variance (1 - p) / p < R / s objects, or s R bytes: all blocks together have a standard error below sqrt(R bytes) bytes.
R changes while the program runs, so the bound is 4 standard errors at the sparsest rate that was ever said. The seed is
fixed; when rates change is not, so this fails in less than one run of 15000.
"""

import math
import re

from daemon import DaemonCase
from harness import target, wait_until

SIZE = 1024
RAISED = r"^heaptap: process {} \(\S+\) is sampled every 2\^(\d+) bytes now: {}"


class BudgetCase(DaemonCase):
    def rates_said(self, daemon, pid):
        return [int(rate) for rate in re.findall(RAISED.format(pid, ""), daemon.process.stderr(), re.MULTILINE)]

    def assert_true(self, daemon, entry, size_bytes):
        """The estimate of all that was allocated."""
        sparsest = max([entry["lg_sample"], *self.rates_said(daemon, entry["pid"])])
        bound = 4 * math.sqrt((1 << sparsest) * size_bytes)
        self.assertLessEqual(abs(entry["allocated_bytes"] - size_bytes), bound, (entry, size_bytes, sparsest))
        print(f"        at most 2^{sparsest}: {entry['allocated_bytes']:.0f} of {size_bytes} bytes, "
              f"{100 * (entry['allocated_bytes'] / size_bytes - 1):+.2f} %, bound {100 * bound / size_bytes:.2f} %",
              flush=True)


class Budget(BudgetCase):
    def test_the_rate_is_raised_and_comes_back(self):
        daemon = self.daemon("--lg-sample", "10", "--budget", "0.1")
        puppet = self.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:10", "HEAPTAP_CONF": "prof_seed:1"})
        quiet = self.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:10", "HEAPTAP_CONF": "prof_seed:2"})
        wait_until(lambda: len(daemon.processes()) == 2, "both are recorded")
        objects = 0

        def is_raised():
            nonlocal objects
            puppet.ask(f"churn 100000 {SIZE}")
            objects += 100000
            return daemon.processes()[puppet.target_pid]["lg_sample"] >= 13
        wait_until(is_raised, "its rate is raised")
        daemon.wait_said(RAISED.format(puppet.target_pid, "the budget is passed"))
        self.assertRegex(daemon.client("list"), rf"(?m)^\s*{puppet.target_pid} +puppet .* (1[3-9]|[2-5]\d) ")
        # So is an allocation at the new rate.
        puppet.ask(f"churn 500000 {SIZE}")
        objects += 500000
        entry = daemon.processes()[puppet.target_pid]
        self.assert_true(daemon, entry, objects * SIZE)
        self.assertEqual(daemon.processes()[quiet.target_pid]["lg_sample"], 10)
        # It does nothing more, and may be sampled as densely as at first.
        wait_until(lambda: daemon.processes()[puppet.target_pid]["lg_sample"] == 10, "its rate is what it was")
        daemon.wait_said(RAISED.format(puppet.target_pid, "what it costs is within the budget again"))
        self.assertEqual(self.rates_said(daemon, quiet.target_pid), [])

    def run_paced(self, daemon):
        program = self.preloaded(target("paced"), 20000, 5,
                                 env={"MALLOC_CONF": "lg_prof_sample:0", "HEAPTAP_CONF": "prof_seed:3"})
        self.assertEqual(program.wait(), 0)
        (entry,) = wait_until(daemon.ended, "it has ended")
        return entry, *map(int, program.stdout().splitlines()[1].split()[1:3])

    def test_exact_has_no_budget(self):
        daemon = self.daemon("--exact")
        entry, objects, size_bytes = self.run_paced(daemon)
        self.assertEqual((entry["lg_sample"], entry["samples"], entry["allocated_bytes"]), (0, objects, size_bytes))
        self.assertEqual(self.rates_said(daemon, entry["pid"]), [])

    def test_exact_with_a_budget(self):
        daemon = self.daemon("--exact", "--budget", "0.1")
        entry, objects, size_bytes = self.run_paced(daemon)
        self.assertGreater(entry["lg_sample"], 0)
        self.assertLess(entry["samples"], objects)
        self.assert_true(daemon, entry, size_bytes)

    def test_a_process_that_ran_before(self):
        """Its cost counts, too."""
        puppet = self.preloaded_puppet(env={"MALLOC_CONF": "lg_prof_sample:10"})
        daemon = self.daemon("--lg-sample", "10", "--budget", "0.1")

        def is_raised():
            puppet.ask(f"churn 100000 {SIZE}")
            return daemon.processes()[puppet.target_pid]["lg_sample"] > 10
        wait_until(is_raised, "its rate is raised")
