# SPDX-License-Identifier: Apache-2.0
"""The probes are real USDT for others too: bpftrace, given the library's path, prints the stacks of a live process."""

import signal

import control
from harness import LIBRARY, ROOT, Case, wait_until

# More blocks than free lists hold, so that the process notices that sampling is on, and many samples at the default
# rate: about 190 each.
ROUND = "churn 100000 1000"
ROUNDS = 50


class Bpftrace(Case):
    def listens(self, tracer):
        """It has attached and waits for events: a SIGINT at any other time can be lost on bpftrace."""
        with open(f"/proc/{tracer.pid}/wchan", encoding="ascii") as file:
            return "Attaching 1 probe" in tracer.stdout() and "poll" in file.read()

    def assert_prints_stacks(self, *arguments):
        puppet = self.preloaded_puppet()
        arguments = [str(puppet.target_pid) if word == "PID" else word for word in arguments]
        tracer = self.program("bpftrace", *arguments, cwd=ROOT)
        wait_until(lambda: self.listens(tracer), "bpftrace attaches")
        self.assertGreater(control.semaphores(puppet.target_pid, LIBRARY)["otel_memory:alloc"], 0)
        for _ in range(ROUNDS):
            puppet.ask(ROUND)
        wait_until(lambda: self.listens(tracer), "bpftrace has read what there was")
        tracer.signal(signal.SIGINT)
        self.assertEqual(tracer.wait(), 0, tracer.stderr())
        self.assertRegex(tracer.stdout(), r"(?s)@\[[^\]]*churn_blocks\+\d+[^\]]*main\+\d+[^\]]*\]: \d+")
        self.assertEqual(puppet.ask(ROUND), "churned 100000")

    def test_one_liner(self):
        """As it is written down: every process of the machine; the note's semaphore turns sampling on."""
        self.assert_prints_stacks("-e", "usdt:./build/libheaptap.so:otel_memory:alloc { @[ustack] = sum(arg2); }")

    def test_of_one_process(self):
        """With -p bpftrace looks for the file in the process's root, so its path must be absolute."""
        self.assert_prints_stacks("-p", "PID", "-e", f"usdt:{LIBRARY}:otel_memory:alloc {{ @[ustack] = sum(arg2); }}")

    def test_the_library_says_where_its_probes_are(self):
        listing = self.program("bpftrace", "-l", f"usdt:{LIBRARY}:*")
        self.assertEqual(listing.wait(), 0, listing.stderr())
        for probe in ("otel_memory:alloc", "otel_memory:free", "heaptap:start", "heaptap:dump"):
            self.assertIn(probe, listing.stdout())
