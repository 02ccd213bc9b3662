# SPDX-License-Identifier: Apache-2.0
"""Load: 50000 samples a second by 8 processes; and maps that are too small for it.

HEAPTAP_LOAD_SECONDS is how long (default 5); from 60 on the pace itself is asserted, too. Each block is a sample, in
exact recordings: what programs counted is compared digit for digit.
"""

import os

import books
import symbols
from daemon import EXACT, DaemonCase
from harness import target, wait_until

SECONDS = int(os.environ.get("HEAPTAP_LOAD_SECONDS", "5"))
PROCESSES = 8
PER_SECOND = 50000
WHOLE_RUN_SECONDS = 60


class LoadCase(DaemonCase):
    def paced(self, *arguments):
        return self.preloaded(target("paced"), *arguments, env=EXACT)

    def counted(self, program):
        """(objects, bytes, live objects, live bytes, seconds) as the program counted."""
        words = program.stdout().splitlines()[1].split()
        return (*map(int, words[1:3]), *map(int, words[4:6]), float(words[7]))

    def cpu_seconds(self, pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, pid, name):
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024

    def ended(self, daemon, programs):
        wait_until(lambda: len(daemon.ended()) >= len(programs), "all have ended")
        by_pid = {entry["pid"]: entry for entry in daemon.ended()}
        return [by_pid[program.pid] for program in programs]


class Load(LoadCase):
    def test_no_losses_at_default_sizes(self):
        daemon = self.daemon("--exact", "--budget", "0", "--dump-at-exit", "always")
        collector = daemon.process.pid
        before = self.cpu_seconds(collector)
        memory_before = self.memory(collector, "VmRSS")
        programs = [self.paced(PER_SECOND // PROCESSES, SECONDS, 1000, 6) for _ in range(PROCESSES)]
        wait_until(lambda: len(daemon.processes()) == PROCESSES, "all are recorded")
        self.assertEqual([entry["losses"] for entry in daemon.processes().values()], [{}] * PROCESSES)
        kernel_memory = daemon.metrics()["heaptap_kernel_memory_bytes"]
        for program in programs:
            self.assertEqual(program.wait(SECONDS + 60), 0)
        cpu = self.cpu_seconds(collector) - before
        pace = 0
        for program, entry in zip(programs, self.ended(daemon, programs)):
            objects, size_bytes, live, live_bytes, seconds = self.counted(program)
            pace += objects / seconds
            self.assertEqual(entry["losses"], {})
            dump = self.only_dump(program.pid, "f")
            stacks = symbols.stacks_through(dump, "allocate_block")
            self.assertEqual(dump.warnings, [])
            self.assertEqual(sum(stack.ever.objects for stack in stacks), objects)
            self.assertEqual(sum(stack.ever.bytes for stack in stacks), size_bytes)
            self.assertEqual(sum(stack.total.objects for stack in stacks), live)
            self.assertEqual(sum(stack.total.bytes for stack in stacks), live_bytes)
        lost = {name: value for name, value in daemon.metrics().items() if "_lost_total" in name and value}
        self.assertEqual(lost, {})
        if SECONDS >= WHOLE_RUN_SECONDS:
            self.assertGreater(pace, 0.95 * PER_SECOND)
        mi = 1 << 20
        print(f"        {pace:.0f} samples/s for {SECONDS} s; collector: {cpu:.2f} s of CPU, "
              f"{memory_before / mi:.1f} MiB before, {self.memory(collector, 'VmRSS') / mi:.1f} MiB after, "
              f"{self.memory(collector, 'VmHWM') / mi:.1f} MiB at most; {kernel_memory / mi:.1f} MiB in the kernel",
              flush=True)


class TooSmall(LoadCase):
    SIZES = ("events=4096", "live=2048", "tallies=512", "stacks=512")

    def test_losses_are_counted_and_shown(self):
        """Samples in the books and lost ones are together what the program counted."""
        sizes = [word for size in self.SIZES for word in ("--map-size", size)]
        allowed = ("live_full", "live_share", "tallies_full", "tallies_share", "stacks_full", "stack_collision",
                   "events_full")
        daemon = self.daemon("--exact", "--budget", "0", "--dump-at-exit", "always", *sizes, losses_allowed=allowed)
        programs = [self.paced(PER_SECOND // PROCESSES, SECONDS, 1000, 9) for _ in range(PROCESSES)]

        def losing():
            return sum(1 for entry in daemon.processes().values() if entry["losses"]) == PROCESSES
        wait_until(losing, "all have losses")
        pid = programs[0].pid
        self.assertRegex(daemon.client("list"), rf"(?m)^\s*{pid} .*[1-9]\d* ")
        shown = [name for name, value in daemon.metrics().items()
                 if name.startswith(f'heaptap_events_lost_total{{pid="{pid}"') and value]
        self.assertTrue(shown, daemon.metrics())
        for program in programs:
            self.assertEqual(program.wait(SECONDS + 60), 0)
        without_sample = ("stacks_full", "stack_collision", "events_full")
        for program, entry in zip(programs, self.ended(daemon, programs)):
            objects, _, live, _, _ = self.counted(program)
            lost = sum(events for reason, events in entry["losses"].items() if reason not in without_sample)
            self.assertGreater(lost, 0)
            self.assertEqual(entry["samples"] + lost, objects, entry)
            self.assertLessEqual(entry["live_objects"], live)
            dump = self.only_dump(program.pid, "f")
            self.assertTrue(any("share" in warning or "full" in warning for warning in dump.warnings), dump.warnings)
            (in_books,) = [one for one in daemon.books() if one["pid"] == program.pid]
            self.assertEqual(in_books["samples_allocated"] + lost, objects)
            self.assertEqual(books.losses(in_books), entry["losses"])
