# SPDX-License-Identifier: Apache-2.0
"""The README's one-liners, word for word, with the real bpftrace and BCC, on programs whose allocations are known.

MALLOC_CONF=lg_prof_sample:0 makes every allocation a sample, so that every number that a line prints is known too. The
programs have no ready blocks of the sizes that the tests use, so sampling holds from the first.
"""

import errno
import inspect
import re
import signal
import time

import bcc_tools
import control
from harness import LIBRARY, PATIENCE_SECONDS, ROOT, Case, target, wait_until
from one_liners import BCC, BPFTRACE, by_stack, command, histogram, questions, through

EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
# 20000 blocks of 1000 bytes: 1024 usable; 1000 blocks of 100 bytes: 112 usable.
CHURN, CHURNED_SAMPLES, CHURNED_BYTES = "churn 20000 1000", 20000, 20000 * 1024
KEEP, KEPT_SAMPLES, KEPT_BYTES = "keep 1000 100", 1000, 1000 * 112
# Longer than any test: it ends the line itself.
ENDLESS = "600"
# A sample every 64 KiB, repeatable. 20000 blocks of 1024 bytes give about 310 samples: a relative error of 1/sqrt(310),
# 5.7 %; the bound is five times that.
SAMPLED = {"MALLOC_CONF": "lg_prof_sample:16", "HEAPTAP_CONF": "prof_seed:1"}
SAMPLED_KEEP, SAMPLED_BYTES, SAMPLED_ERROR = "keep 20000 1000", 20000 * 1024, 0.28
SCRIPTS = ("bytes_by_stack", "old_objects", "lifetimes", "sizes", "allocation_rate", "leak_suspects", "top_threads",
           "stack_sizes", "high_water", "dump_events")


class Lines(Case):
    tool = None

    def line(self, question, pid=None, words=None, wait=True):
        """Starts a line of the README, with other `words` for some of its own; waits until it has attached."""
        words = command(question, self.tool, dict(words or {}, PID=str(pid)))
        env = {"BPFTRACE_MAP_KEYS_MAX": "100000"}
        if self.tool == BCC:
            words, env = bcc_tools.wrapper() + words, bcc_tools.environment(self.folder)
        tracer = self.program(*words, cwd=ROOT, env=env)
        if pid is not None and wait:
            wait_until(lambda: self.listens(tracer, pid), f"{words} listens")
        return tracer

    def listens(self, tracer, pid):
        """It has attached, and waits for events or for its time to be over."""
        self.assertTrue(tracer.alive(), f"{tracer.command} ended:\n{tracer.stdout()}\n{tracer.stderr()}")
        return self.waits(tracer) and any(control.semaphores(pid, LIBRARY).values())

    def waits(self, tracer):
        with open(f"/proc/{tracer.pid}/wchan", encoding="ascii") as file:
            return re.search("poll|nanosleep", file.read())

    def end(self, tracer):
        """Ctrl-C; what it has printed. Its exit status is the tool's own affair: trace's is 1 then.

        bpftrace forgets a SIGINT that comes while it does not wait for events, as it does for an instant ten times a
        second; so another one follows if it still waits a second later. After SIGINT it does not wait so long."""
        def ended():
            if self.waits(tracer):
                tracer.signal(signal.SIGINT)
            give_up = time.monotonic() + 1
            wait_until(lambda: not tracer.alive() or time.monotonic() > give_up, "it ends")
            return not tracer.alive()
        wait_until(ended, f"{tracer.command} ends")
        return tracer.stdout()

    def exact_puppet(self):
        return self.preloaded_puppet(env=EXACT)

    def run_on_puppet(self, question, *lines, words=None, env=None):
        """What a line prints about a puppet that obeys these lines."""
        puppet = self.preloaded_puppet(env=env or EXACT)
        tracer = self.line(question, puppet.target_pid, words)
        for line in lines:
            puppet.ask(line)
        return self.end(tracer)


class Bpftrace(Lines):
    tool = BPFTRACE

    def test_which_probes(self):
        listing = self.line("which probes")
        self.assertEqual(listing.wait(), 0, listing.stderr())
        for probe in ("otel_memory:alloc", "otel_memory:free", "heaptap:start", "heaptap:dump"):
            self.assertIn(f"usdt:{LIBRARY}:{probe}\n", listing.stdout())

    def test_bytes_by_stack(self):
        stacks = by_stack(self.run_on_puppet("bytes by stack", CHURN, KEEP, words={"10": ENDLESS}), "bytes")
        self.assertEqual(through(stacks, "churn_blocks"), CHURNED_BYTES)
        self.assertEqual(through(stacks, "keep_blocks"), KEPT_BYTES)
        self.assertEqual(sum(number for _, number in stacks), CHURNED_BYTES + KEPT_BYTES)

    def test_estimates(self):
        """Bytes are those of all allocations, not of the samples."""
        question = "leak suspects: allocated, not freed meanwhile"
        output = self.run_on_puppet(question, SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
        estimate = through(by_stack(output, "not_freed_bytes"), "keep_blocks")
        self.assertAlmostEqual(estimate / SAMPLED_BYTES, 1, delta=SAMPLED_ERROR)
        samples = through(by_stack(output, "not_freed_samples"), "keep_blocks")
        self.assertAlmostEqual(samples * (1 << 16) / SAMPLED_BYTES, 1, delta=SAMPLED_ERROR)
        output = self.run_on_puppet("bytes by stack", SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
        self.assertEqual(through(by_stack(output, "bytes"), "keep_blocks"), estimate)
        output = self.run_on_puppet("top threads", SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
        self.assertRegex(output, rf"@bytes\[\d+, puppet\]: {estimate}\n")
        output = self.run_on_puppet("high-water watch, marks of 20 %", SAMPLED_KEEP, env=SAMPLED)
        self.assertIn(f"highest {estimate} bytes, now {estimate} bytes\n", output)

    def test_old_objects(self):
        """What is allocated after the first part, and what is freed before the end, is not seen."""
        puppet = self.exact_puppet()
        words = {"10": "1", "20": "8"}
        tracer = self.line("live objects older than 10 s, by stack", puppet.target_pid, words)
        puppet.ask(CHURN)
        puppet.ask(KEEP)
        self.assertNotIn("Waits", tracer.stdout(), "the machine is too slow: 8 s were not enough")
        wait_until(lambda: "Waits" in tracer.stdout(), "the first part ends")
        puppet.ask("keep 50 5000")
        self.assertEqual(tracer.wait(), 0, tracer.stderr())
        stacks = by_stack(tracer.stdout(), "live_bytes")
        self.assertEqual(through(stacks, "keep_blocks"), KEPT_BYTES)
        self.assertEqual(through(stacks, "churn_blocks"), 0)

    def test_lifetimes(self):
        rows = histogram(self.run_on_puppet("lifetimes, a histogram", KEEP, CHURN, words={"10": ENDLESS}))
        self.assertEqual(sum(rows.values()), CHURNED_SAMPLES)
        self.assertGreater(sum(count for low, count in rows.items() if low < 64), CHURNED_SAMPLES // 2)

    def test_a_long_lifetime(self):
        """A thousand objects that live a tenth of a second and longer."""
        puppet = self.exact_puppet()
        tracer = self.line("lifetimes, a histogram", puppet.target_pid, {"10": ENDLESS})
        puppet.ask(KEEP)
        kept = time.monotonic()
        wait_until(lambda: time.monotonic() - kept > 0.1, "they grow old")
        puppet.ask("drop")
        rows = histogram(self.end(tracer))
        self.assertEqual(sum(rows.values()), KEPT_SAMPLES)
        self.assertGreaterEqual(min(rows), 1 << 16, "microseconds")

    def test_sizes(self):
        rows = histogram(self.run_on_puppet("sizes, a histogram", CHURN, KEEP, words={"10": ENDLESS}))
        self.assertEqual(rows, {1024: CHURNED_SAMPLES, 64: KEPT_SAMPLES})

    def test_allocation_rate(self):
        puppet = self.exact_puppet()
        tracer = self.line("allocation rate, each second", puppet.target_pid, {"10": ENDLESS})
        second = f"@bytes: {CHURNED_BYTES}\n@samples: {CHURNED_SAMPLES}\n"
        # A round that a second's end cuts in two is repeated.
        wait_until(lambda: self.round_is_seen(puppet, tracer, second), "a round within one second")
        idle = "@bytes: 0\n@samples: 0\n"
        wait_until(lambda: tracer.stdout().rstrip().endswith(idle.rstrip()), "a second without allocations")
        self.assertRegex(self.end(tracer), r"\d\d:\d\d:\d\d\n@bytes")

    def round_is_seen(self, puppet, tracer, text):
        """Whether the seconds after a round of allocations show it as `text`."""
        before = len(tracer.stdout())
        puppet.ask(CHURN)
        wait_until(lambda: len(re.findall(r"\d\d:\d\d:\d\d", tracer.stdout()[before:])) > 2, "two seconds are over")
        return text in tracer.stdout()[before:]

    def test_leak_suspects(self):
        output = self.run_on_puppet("leak suspects: allocated, not freed meanwhile", "keep 300 3000", "drop", CHURN,
                                    KEEP, words={"10": ENDLESS})
        for name, expected in (("not_freed_bytes", KEPT_BYTES), ("not_freed_samples", KEPT_SAMPLES)):
            stacks = by_stack(output, name)
            self.assertEqual(through(stacks, "churn_blocks"), 0)
            self.assertEqual(through(stacks, "keep_blocks"), expected)

    def test_top_threads(self):
        workers = self.program(target("named_threads"), talks=True, env=dict(EXACT, LD_PRELOAD=LIBRARY))
        pid = int(workers.answer().split()[1])
        tracer = self.line("top threads", pid, {"10": ENDLESS})
        threads = [int(word) for word in workers.ask("go").split()]
        output = self.end(tracer)
        for number, thread in enumerate(threads, 1):
            self.assertIn(f"@bytes[{thread}, worker-{number}]: {number * 1000 * 1024}\n", output)

    def test_one_stack_s_sizes(self):
        puppet = self.exact_puppet()
        tracer = self.line("bytes by stack", puppet.target_pid, {"10": ENDLESS})
        puppet.ask(KEEP)
        address = re.search(r"([0-9a-f]+) keep_blocks\+", self.end(tracer)).group(1)
        words = {"ADDRESS": f"0x{address}", "10": ENDLESS}
        tracer = self.line("one stack's sizes", puppet.target_pid, words)
        puppet.ask(CHURN)
        puppet.ask("keep 300 3000")
        puppet.ask("keep 40 200")
        output = self.end(tracer)
        self.assertEqual(histogram(output), {2048: 300, 128: 40})
        self.assertIn(f"@bytes: {300 * 3072 + 40 * 224}\n", output)

    def test_high_water(self):
        """The marks are those that the rule gives: 20 % above the last, from 1 MiB on."""
        output = self.run_on_puppet("high-water watch, marks of 20 %", "keep 100 100000", "drop", "keep 10 100000")
        marks, mark = [], 1 << 20
        for live in range(114688, 100 * 114688 + 1, 114688):
            if live * 100 >= mark * 120:
                mark = live
                marks.append(live)
        self.assertEqual([int(word) for word in re.findall(r" live (\d+) bytes", output)], marks)
        self.assertIn(f"highest {100 * 114688} bytes, now {10 * 114688} bytes\n", output)

    def test_requests_for_dumps(self):
        puppet = self.exact_puppet()
        session = self.attach(puppet.target_pid)
        tracer = self.line("requests for dumps", puppet.target_pid)
        # The semaphore does not tell: heaptap listens too.
        wait_until(lambda: "Requests" in tracer.stdout(), "bpftrace listens")
        for number in (1, 2):
            self.assertEqual(puppet.ask("dump"), "mallctl 0")
            line = f"{puppet.target_pid} puppet asks for dump {number}, kind m, into its descriptor "
            wait_until(lambda: line in tracer.stdout(), "its line")
        self.assertEqual(len(re.findall("asks for dump", self.end(tracer))), 2)
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())

    def test_all_processes(self):
        """Without -p it finds processes that come later, too."""
        first = self.exact_puppet()
        tracer = self.line("bytes by stack, of all processes")
        wait_until(lambda: self.listens(tracer, first.target_pid), "it listens")
        first.ask(KEEP)
        second = self.exact_puppet()
        second.ask("keep 10 5000")
        output = self.end(tracer)
        stacks = [(stack, int(number)) for stack, number in
                  re.findall(r"^@\[puppet, \n(.*?)^\]: (\d+)$", output, re.MULTILINE | re.DOTALL)]
        self.assertEqual(through(stacks, "keep_blocks"), KEPT_BYTES + 10 * 5120)

    def test_each_ends_by_itself(self):
        """At the time that is given, with status 0 and no warning, and the sampling is off again."""
        puppet = self.exact_puppet()
        arguments = {"old_objects": ["1", "1"], "stack_sizes": ["0x1000", "1"], "high_water": ["20", "1"]}
        tracers = [self.program("bpftrace", "-p", puppet.target_pid, f"{ROOT}/scripts/{script}.bt",
                                *arguments.get(script, ["1"])) for script in SCRIPTS]
        for tracer in tracers:
            self.assertEqual(tracer.wait(), 0, tracer.stderr())
            self.assertNotIn("WARNING", tracer.stderr())
        self.assertEqual(set(control.semaphores(puppet.target_pid, LIBRARY).values()), {0})


class Bcc(Lines):
    tool = BCC

    def counts(self, output):
        """[(stack, count)] of what stackcount prints."""
        found = re.findall(r"((?:^  \S.*\n)+)^    (\d+)$", output, re.MULTILINE)
        return [(stack, int(count)) for stack, count in found]

    def assert_live(self, output, size, samples):
        """What live_objects prints: one stack, through keep_blocks()."""
        self.assertEqual(re.findall(r"^live.*: (\d+) bytes in (\d+) samples$", output, re.MULTILINE),
                         [(str(size), str(samples))], output)
        self.assertRegex(output, rf"(?m)^{size} bytes in {samples} samples\n(    \S.*\n)*    keep_blocks\+0x")
        self.assertNotIn("did not fit", output)

    def test_which_probes(self):
        listing = self.line("which probes")
        self.assertEqual(listing.wait(), 0, listing.stderr())
        arguments = {"otel_memory:alloc": ["di", "si", "dx"], "otel_memory:free": ["di"], "heaptap:start": ["di"],
                     "heaptap:dump": ["di"]}
        found = {probe: re.findall(r"argument #\d 8 unsigned bytes @ (\w+)", lines) for probe, lines in
                 re.findall(r"^(\w+:\w+) \[sema 0x[0-9a-f]+\]\n((?:  .*\n)*)", listing.stdout(), re.MULTILINE)}
        self.assertEqual({probe: found.get(probe) for probe in arguments}, arguments)

    def test_bytes_by_stack(self):
        output = self.run_on_puppet("bytes by stack", CHURN, KEEP, words={"10": ENDLESS})
        self.assertEqual(through(self.counts(output), "churn_blocks"), CHURNED_SAMPLES, output)
        self.assertEqual(through(self.counts(output), "keep_blocks"), KEPT_SAMPLES, output)

    def test_estimates(self):
        """Bytes are those of all allocations, not of the samples."""
        question = "leak suspects: allocated, not freed meanwhile"
        output = self.run_on_puppet(question, SAMPLED_KEEP, words={"10": ENDLESS}, env=SAMPLED)
        estimate = int(re.search(r"^live: (\d+) bytes", output, re.MULTILINE).group(1))
        self.assertAlmostEqual(estimate / SAMPLED_BYTES, 1, delta=SAMPLED_ERROR)

    def test_old_objects(self):
        puppet = self.exact_puppet()
        age = 5
        words = {"10": str(age), "30": ENDLESS}
        tracer = self.line("live objects older than 10 s, by stack", puppet.target_pid, words)
        puppet.ask(KEEP)
        puppet.ask("keep 20 2000")
        kept = time.monotonic()
        wait_until(lambda: time.monotonic() - kept > age, "they grow old")
        young = time.monotonic()
        puppet.ask("keep 300 3000")
        output = self.end(tracer)
        self.assertLess(time.monotonic() - young, age, "the machine is too slow: the young are old")
        self.assert_live(output, KEPT_BYTES + 20 * 2048, KEPT_SAMPLES + 20)
        self.assertIn(f"live in objects older than {age} s", output)

    def test_lifetimes(self):
        rows = histogram(self.run_on_puppet("lifetimes, a histogram", KEEP, CHURN, words={"10": ENDLESS}))
        self.assertEqual(sum(rows.values()), CHURNED_SAMPLES)

    def test_sizes(self):
        puppet = self.exact_puppet()
        tracer = self.line("sizes, a histogram", puppet.target_pid, {"10": "4"})
        puppet.ask(CHURN)
        puppet.ask(KEEP)
        self.assertEqual(tracer.wait(), 0, tracer.stderr())
        self.assertEqual(histogram(tracer.stdout()), {1024: CHURNED_SAMPLES, 64: KEPT_SAMPLES}, tracer.stdout())

    def test_allocation_rate(self):
        puppet = self.exact_puppet()
        tracer = self.line("allocation rate, each second", puppet.target_pid, {"10": ENDLESS})
        # A round that a second's end cuts in two is repeated.
        wait_until(lambda: self.round_is_seen(puppet, tracer), "a round within one second")
        self.end(tracer)

    def round_is_seen(self, puppet, tracer):
        before = len(tracer.stdout())
        puppet.ask(CHURN)
        wait_until(lambda: len(re.findall(r"\[\d\d:\d\d:\d\d\]", tracer.stdout()[before:])) > 2, "two seconds are over")
        return re.search(rf"^\t{CHURNED_SAMPLES} +total calls$", tracer.stdout()[before:], re.MULTILINE)

    def test_leak_suspects(self):
        output = self.run_on_puppet("leak suspects: allocated, not freed meanwhile", "keep 300 3000", "drop", CHURN,
                                    KEEP, words={"10": ENDLESS})
        self.assert_live(output, KEPT_BYTES, KEPT_SAMPLES)

    def test_top_threads(self):
        workers = self.program(target("named_threads"), talks=True, env=dict(EXACT, LD_PRELOAD=LIBRARY))
        pid = int(workers.answer().split()[1])
        tracer = self.line("top threads", pid, {"10": "4"})
        threads = workers.ask("go").split()
        self.assertEqual(tracer.wait(), 0, tracer.stderr())
        found = dict(re.findall(r"^\t(\d+) +bpf_get_current_pid_tgid\(\) = (\d+)$", tracer.stdout(), re.MULTILINE))
        self.assertEqual([thread for _, thread in sorted(found.items()) if thread in threads], threads)
        self.assertLessEqual({"1000", "2000", "3000"}, set(found), tracer.stdout())

    def test_one_stack_s_sizes(self):
        puppet = self.exact_puppet()
        tracer = self.line("one stack's sizes", puppet.target_pid)
        puppet.ask("keep 100 100")
        puppet.ask("keep 20 3000")
        wait_until(lambda: len(re.findall(r" bytes\n", tracer.stdout())) == 120, "its lines")
        samples = re.findall(r"alloc +(\d+) bytes\n(?: +\S.*\n)* +keep_blocks\+", self.end(tracer))
        self.assertEqual((samples.count("112"), samples.count("3072"), len(samples)), (100, 20, 120))

    def test_high_water(self):
        output = self.run_on_puppet("high-water watch, marks of 20 %", "keep 100 100000", "drop", "keep 10 100000",
                                    words={"60": ENDLESS})
        self.assertIn(f"highest {100 * 114688} bytes, now {10 * 114688} bytes\n", output)

    def test_requests_for_dumps(self):
        """Without a heaptap, since BCC cannot listen beside it: the process waits in vain."""
        puppet = self.exact_puppet()
        tracer = self.line("requests for dumps", puppet.target_pid)
        puppet.tell("dump")
        line = rf"{puppet.target_pid} +{puppet.target_pid} +puppet +dump +request [0-9a-f]+\n"
        wait_until(lambda: re.search(line, tracer.stdout()), "its line")
        self.assertEqual(puppet.answer(), f"mallctl {errno.EAGAIN}")
        self.end(tracer)

    def test_beside_heaptap(self):
        """BCC 0.26 tells the kernel a wrong place of the semaphore. The kernel refuses it then, and heaptap goes on."""
        puppet = self.exact_puppet()
        session = self.attach(puppet.target_pid)
        tracer = self.line("sizes, a histogram", puppet.target_pid, wait=False)
        self.assertEqual(tracer.wait(), 1)
        self.assertIn("Failed to attach BPF to uprobe", tracer.stdout() + tracer.stderr())
        puppet.ask(KEEP)
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(self.only_dump().total.objects, KEPT_SAMPLES)

    def test_it_ends_by_itself(self):
        """live_objects, with nothing to show; and the sampling is off again."""
        puppet = self.exact_puppet()
        tracer = self.line("lifetimes, a histogram", puppet.target_pid, {"10": "1"})
        self.assertEqual(tracer.wait(PATIENCE_SECONDS), 0, tracer.stderr())
        self.assertIn("highest 0 bytes, now 0 bytes\nlive: 0 bytes in 0 samples\n", tracer.stdout())
        self.assertEqual(set(control.semaphores(puppet.target_pid, LIBRARY).values()), {0})


class Table(Case):
    needs_bpf = False

    def test_every_line_is_tested(self):
        """A line that is added to the table needs a test here."""
        for tests in (Bpftrace, Bcc):
            source = inspect.getsource(tests)
            for question in questions(tests.tool):
                self.assertIn(f'"{question}"', source)
