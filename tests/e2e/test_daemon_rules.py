# SPDX-License-Identifier: Apache-2.0
"""Rules of the daemon: which processes are recorded, and how; what SIGHUP changes.

Where a rule changes the rate, the allocator learns of it at its next slow path: what a test allocates after that is
exact. Error bounds: none.
"""

import os
import shutil
import signal

import symbols
from daemon import EXACT, DaemonCase
from harness import target, wait_until
from memory_cgroup import MemoryCgroup

NOBODY = 65534


class RulesCase(DaemonCase):
    def wait_recorded(self, daemon, pid):
        return wait_until(lambda: daemon.processes().get(pid), f"{pid} is recorded")

    def assert_rate(self, daemon, puppet, rate):
        """What list says, and what the process does."""
        def said():
            entry = daemon.processes().get(puppet.target_pid)
            return entry is not None and entry["lg_sample"] == rate
        wait_until(said, f"{puppet.target_pid} is sampled every 2^{rate} bytes")
        # The control block was written before list could say so.
        puppet.ask("churn 70000 64")  # through every free list
        before = daemon.processes()[puppet.target_pid]["samples"]
        puppet.ask("churn 4096 1024")
        samples = daemon.processes()[puppet.target_pid]["samples"] - before
        if rate == 0:
            self.assertEqual(samples, 4096)
        else:
            # Poisson, with a mean of some hundred at the densest rate that is used here: ten standard errors.
            mean = (4096 << 10) / (1 << rate)
            self.assertLess(abs(samples - mean), 10 * mean ** 0.5 + 10, (samples, mean))

    def named(self, name, **options):
        """A puppet whose command has this name."""
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            shutil.copy(target("puppet"), path)
        puppet = self.preloaded(path, talks=True, **options)
        puppet.target_pid = int(puppet.answer().split()[1])
        return puppet


class Rules(RulesCase):
    def test_command(self):
        """The first rule that holds counts; a pattern is a pattern; who has no rule has the defaults."""
        daemon = self.daemon("--lg-sample", "15", "--rule", "comm=red* lg-sample=14", "--rule", "comm=redder exact",
                             "--rule", "comm=blue exact")
        for name, rate in (("red", 14), ("redder", 14), ("blue", 0), ("bluer", 15)):
            with self.subTest(name=name):
                self.assert_rate(daemon, self.named(name), rate)

    def test_user(self):
        daemon = self.daemon("--lg-sample", "15", "--rule", f"user={NOBODY} exact", "--rule", "user=root lg-sample=14")
        self.assert_rate(daemon, self.named("puppet", user=NOBODY, group=NOBODY, extra_groups=[]), 0)
        self.assert_rate(daemon, self.named("puppet"), 14)

    def test_control_group(self):
        cgroup = MemoryCgroup(f"heaptap-test-{os.getpid()}.slice")
        self.addCleanup(cgroup.remove)
        daemon = self.daemon("--lg-sample", "15", "--rule", f"cgroup={cgroup.path[:-6]}*.slice exact")
        inside = self.named("puppet", preexec_fn=cgroup.enter)
        self.assert_rate(daemon, inside, 0)
        self.assert_rate(daemon, self.named("puppet"), 15)
        self.assertEqual(inside.wait(), 0)

    def test_pid_and_reload(self):
        """A rule for one PID can be written when it is known: SIGHUP."""
        daemon = self.daemon()
        one, other = self.named("puppet"), self.named("puppet")
        self.wait_recorded(daemon, one.target_pid)
        self.wait_recorded(daemon, other.target_pid)
        self.reload(daemon, f"lg-sample=15\nrule=pid={one.target_pid} exact\n")
        self.assert_rate(daemon, one, 0)
        self.assert_rate(daemon, other, 15)
        self.reload(daemon, "lg-sample=14\n")
        self.assert_rate(daemon, one, 14)
        self.assert_rate(daemon, other, 14)

    def reload(self, daemon, configuration, said="read the configuration again"):
        with open(daemon.configuration, "w", encoding="ascii") as file:
            file.write(configuration)
        times = daemon.process.stderr().count(said)
        daemon.process.signal(signal.SIGHUP)
        return daemon.wait_said(said, count=times + 1)

    def test_a_bad_configuration_changes_nothing(self):
        daemon = self.daemon()
        self.reload(daemon, "rule=comm=puppet exact\n")
        puppet = self.named("puppet")
        self.assert_rate(daemon, puppet, 0)
        self.reload(daemon, "rule=comm=puppet lg-sample=lots\n", "the configuration stays as it was")
        self.assert_rate(daemon, puppet, 0)
        self.assert_rate(daemon, self.named("puppet"), 0)
        self.reload(daemon, "")

    def test_processes_that_run_already(self):
        """Rules hold for them, too."""
        exact, private, other = self.named("exact"), self.named("private"), self.named("other")
        daemon = self.daemon("--lg-sample", "15", "--rule", "comm=exact exact", "--rule", "comm=private record=off")
        self.assert_rate(daemon, exact, 0)
        self.assert_rate(daemon, other, 15)
        self.assertEqual(set(daemon.processes()), {exact.target_pid, other.target_pid})
        private.ask("churn 100000 1024")
        self.assertEqual(set(daemon.processes()), {exact.target_pid, other.target_pid})

    def test_record_off(self):
        """Such a process is nowhere, and costs nothing; its neighbour is recorded. So are they after another start."""
        daemon = self.daemon("--exact", "--dump-at-exit", "always", "--rule", "comm=private* record=off")
        private = self.named("private", env=EXACT)
        public = self.named("puppet", env=EXACT)
        public.ask("keep 1000 100")
        self.wait_recorded(daemon, public.target_pid)
        private.ask("keep 1000 100")
        self.assertEqual(set(daemon.processes()), {public.target_pid})
        self.assertEqual(daemon.get(f"/pid/{private.target_pid}/heap").status, 404)
        daemon.restart()
        private.ask("keep 1000 100")
        self.assertEqual(set(daemon.processes()), {public.target_pid})
        public.ask("keep 1000 100")
        self.assertEqual(private.wait(), 0)
        self.assertEqual(public.wait(), 0)
        wait_until(daemon.ended, "one has ended")
        self.assertEqual([entry["pid"] for entry in daemon.ended()], [public.target_pid])
        kept = symbols.stacks_through(self.only_dump(public.target_pid, "f"), "keep_blocks")
        self.assertEqual(sum(stack.total.objects for stack in kept), 2000)
        self.assertEqual(self.dumps(private.target_pid), [])

    def test_record_off_and_on_again(self):
        """By SIGHUP. What lives from the time before is not known when it is recorded again, as with any process that
        is met late; what comes then is."""
        daemon = self.daemon("--exact")
        puppet = self.named("puppet", env=EXACT)
        puppet.ask("keep 1000 100")
        self.wait_recorded(daemon, puppet.target_pid)
        self.reload(daemon, "rule=comm=puppet record=off\n")
        self.assertEqual(daemon.processes(), {})
        puppet.ask("drop")
        puppet.ask("keep 1000 100")
        self.reload(daemon, "")
        self.wait_recorded(daemon, puppet.target_pid)
        before = daemon.processes()[puppet.target_pid]["live_objects"]
        puppet.ask("keep 1000 100")
        self.assertEqual(daemon.processes()[puppet.target_pid]["live_objects"], before + 1000)
        self.assertEqual(before, 0)
