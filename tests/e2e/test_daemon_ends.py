# SPDX-License-Identifier: Apache-2.0
"""How processes end under the daemon, and the profile of the moment of death.

The leak is sampled at the default rate with a fixed seed; all else is exact. Error bound of the leak: it has to be
95 % of what lives, in truth it is more than 99 %.
"""

import os
import re
import signal

import symbols
from daemon import EXACT, DaemonCase
from harness import target, wait_until
from memory_cgroup import MemoryCgroup

MI = 1 << 20


class Ends(DaemonCase):
    def ended(self, daemon, pid):
        """What the daemon says of a process that has ended."""
        def find():
            return next((entry for entry in daemon.ended() if entry["pid"] == pid), None)
        return wait_until(find, f"process {pid} is among the ended ones")

    def assert_leak_is_named(self, dump, path, least):
        """By the test's own reader, and by jeprof."""
        leaked = dump.estimate(symbols.stacks_through(dump, "leak_block")).bytes
        everything = dump.estimate(dump.stacks).bytes
        self.assertGreaterEqual(leaked, least)
        self.assertGreaterEqual(leaked, 0.95 * everything, (leaked, everything))
        text = self.reader("jeprof", "--text", target("hungry"), path)
        # flat, flat %, sum %, cumulative, cumulative %, name
        line = re.search(r"^\s*\S+\s+(\S+)%\s+\S+%\s+\S+\s+\S+% leak_block$", text, re.MULTILINE)
        self.assertIsNotNone(line, text)
        self.assertGreaterEqual(float(line.group(1)), 95, text)

    def test_oom_kill_leaves_the_leak(self):
        """A program leaks in a memory cgroup until the kernel kills it."""
        limit = 128 * MI
        cgroup = MemoryCgroup(f"heaptap-test-{os.getpid()}", limit)
        self.addCleanup(cgroup.remove)
        daemon = self.daemon()
        hungry = self.preloaded(target("hungry"), env={"HEAPTAP_CONF": "prof_seed:1"}, preexec_fn=cgroup.enter)
        self.assertEqual(hungry.wait(), -signal.SIGKILL)
        ended = self.ended(daemon, hungry.pid)
        self.assertTrue(ended["by_oom_kill"], ended)
        self.assertEqual(ended["status"], signal.SIGKILL)
        self.assertIn("OOM kill", daemon.client("list", "--ended"))
        (dump,) = self.dumps(hungry.pid)
        self.assertEqual((dump.kind, dump.path), ("f", ended["dump"]))
        self.assertEqual(os.stat(dump.path).st_mode & 0o777, 0o600)
        # It dies as it touches the block that does not fit; half of the limit would be four standard errors too few.
        self.assert_leak_is_named(dump.read(), dump.path, limit / 2)

    def test_kill_is_no_oom_kill(self):
        """SIGKILL by somebody, in a cgroup with room."""
        cgroup = MemoryCgroup(f"heaptap-test-{os.getpid()}", 1 << 40)
        self.addCleanup(cgroup.remove)
        daemon = self.daemon()
        hungry = self.preloaded(target("hungry"), env=EXACT, preexec_fn=cgroup.enter)
        wait_until(lambda: len(hungry.stdout().splitlines()) >= 16, "16 MiB are leaked")
        hungry.signal(signal.SIGKILL)
        self.assertEqual(hungry.wait(), -signal.SIGKILL)
        ended = self.ended(daemon, hungry.pid)
        self.assertFalse(ended["by_oom_kill"], ended)
        (dump,) = self.dumps(hungry.pid)
        self.assert_leak_is_named(dump.read(), dump.path, int(hungry.stdout().split()[-1]))

    def end_of(self, daemon, how):
        """Ends a puppet that keeps 100 blocks of 100 bytes; its entry among the ended ones, and its dumps."""
        puppet = self.preloaded_puppet(env=EXACT)
        self.assertEqual(puppet.ask("keep 100 100"), "kept 100")
        if how == "SIGKILL":
            puppet.signal(signal.SIGKILL)
        else:
            puppet.tell(how)
        status = puppet.wait()
        ended = self.ended(daemon, puppet.target_pid)
        self.assertFalse(ended["by_oom_kill"])
        self.assertEqual(ended["status"], -status if status < 0 else status << 8)
        self.assertGreaterEqual(ended["live_objects"], 100)
        dumps = self.dumps(puppet.target_pid)
        self.assertEqual(ended["dump"], dumps[0].path if dumps else "")
        for dump in dumps:
            self.assertEqual(dump.kind, "f")
            kept = symbols.stacks_through(dump.read(), "keep_blocks")
            self.assertEqual(sum(stack.total.objects for stack in kept), 100)
        return status, len(dumps)

    def test_signals_and_exits_by_default(self):
        """A fatal signal leaves a dump, an exit does not, whatever its status."""
        daemon = self.daemon("--exact")
        for how, result in (("segv", (-signal.SIGSEGV, 1)), ("abort", (-signal.SIGABRT, 1)),
                            ("SIGKILL", (-signal.SIGKILL, 1)), (f"raise {int(signal.SIGTERM)}", (-signal.SIGTERM, 1)),
                            ("exit 0", (0, 0)), ("exit 1", (1, 0)), ("_exit 3", (3, 0))):
            with self.subTest(how=how):
                self.assertEqual(self.end_of(daemon, how), result)

    def test_always(self):
        daemon = self.daemon("--exact", "--dump-at-exit", "always")
        for how, result in (("exit 0", (0, 1)), ("_exit 1", (1, 1)), ("SIGKILL", (-signal.SIGKILL, 1))):
            with self.subTest(how=how):
                self.assertEqual(self.end_of(daemon, how), result)

    def test_never(self):
        daemon = self.daemon("--exact", "--dump-at-exit", "never")
        for how, result in (("exit 0", (0, 0)), ("abort", (-signal.SIGABRT, 0)), ("SIGKILL", (-signal.SIGKILL, 0))):
            with self.subTest(how=how):
                self.assertEqual(self.end_of(daemon, how), result)

    def test_a_fatal_signal_before_the_first_sample(self):
        """Nothing was sampled of a program that lives for a moment: it is among the ended ones, without a dump."""
        daemon = self.daemon("--lg-sample", "40")
        program = self.preloaded("/bin/sh", "-c", "kill -9 $$", env={"MALLOC_CONF": "lg_prof_sample:40"})
        self.assertEqual(program.wait(), -signal.SIGKILL)
        ended = self.ended(daemon, program.pid)
        self.assertEqual((ended["samples"], ended["live_objects"], ended["dump"]), (0, 0, ""))
        self.assertEqual(self.dumps(), [])
