# SPDX-License-Identifier: Apache-2.0
"""What makes the daemon write dumps while processes live, and which of them stay.

Recording is exact; error bounds: none.
"""

import ctypes
import os
import signal

import symbols
from daemon import EXACT, DaemonCase
from harness import wait_until


def sigqueue(pid, number, value):
    """As sigqueue(3)."""
    library = ctypes.CDLL(None, use_errno=True)
    library.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    if library.sigqueue(pid, number, value) != 0:
        raise OSError(ctypes.get_errno(), "sigqueue")


class TriggersCase(DaemonCase):
    def puppets(self, daemon, number=1):
        result = [self.preloaded_puppet(env=EXACT) for _ in range(number)]
        for puppet in result:
            wait_until(lambda puppet=puppet: puppet.target_pid in daemon.processes(), "it is recorded")
        return result

    def wait_dumps(self, number, **which):
        """Dumps get their names when they are whole."""
        def found():
            dumps = self.dumps(**which)
            return len(dumps) >= number and dumps
        return wait_until(found, f"{number} dumps")

    def kept(self, dump):
        return sum(stack.total.objects for stack in symbols.stacks_through(dump.read(), "keep_blocks"))


class Triggers(TriggersCase):
    def test_high_water(self):
        """From 1 MiB of live memory on, at each mark that is 20 % above the last one; not when it falls and rises
        again below the mark."""
        daemon = self.daemon("--exact", "--high-water")
        (puppet,) = self.puppets(daemon)
        puppet.ask("keep 900 1024")
        puppet.ask("keep 200 1024")
        (dump,) = self.wait_dumps(1, kind="u")
        self.assertGreaterEqual(self.kept(dump), 1020)
        puppet.ask("drop")
        puppet.ask("keep 1100 1024")
        puppet.ask("keep 4000 1024")
        # Several marks at once may be one dump. It has passed the last mark below 5100 blocks.
        found = self.wait_dumps(2, kind="u")
        self.assertGreaterEqual(self.kept(found[1]), 1220)
        # The peak is the mark that was passed, and list has it.
        self.assertGreaterEqual(daemon.processes()[puppet.target_pid]["peak_bytes"], 5100 * 1024)

    def test_interval(self):
        """Every MiB that is allocated, live or not."""
        daemon = self.daemon("--exact", "--interval", "1M")
        (puppet,) = self.puppets(daemon)
        puppet.ask("keep 10 100")
        for number in (1, 2, 3):
            puppet.ask("churn 1024 1024")
            self.wait_dumps(number, kind="i")
            # Two within a second are one.
            wait_until(lambda: self.is_due(daemon, puppet), "the next may come")
        for dump in self.dumps(kind="i"):
            self.assertEqual(self.kept(dump), 10)

    def is_due(self, daemon, puppet):
        """A second after its last dump, as the file has it."""
        newest = max(os.stat(dump.path).st_mtime for dump in self.dumps(puppet.target_pid))
        return os.stat(self.touch()).st_mtime > newest + 1

    def touch(self):
        path = os.path.join(self.folder, "now")
        with open(path, "w", encoding="ascii"):
            os.utime(path)
        return path

    def test_schedule(self):
        daemon = self.daemon("--exact", "--every", "1s")
        one, other = self.puppets(daemon, 2)
        one.ask("keep 10 100")
        for puppet in (one, other):
            first, second = self.wait_dumps(2, pid=puppet.target_pid, kind="i")[:2]
            self.assertGreater(os.stat(second.path).st_mtime - os.stat(first.path).st_mtime, 0.9)
        # A rule may have another schedule.
        self.assertGreaterEqual(daemon.metrics()['heaptap_dumps_total{trigger="interval"}'], 4)

    def test_rules_have_triggers(self):
        daemon = self.daemon("--exact", "--rule", "comm=puppet interval=1M", "--rule", "comm=* interval=1K")
        (puppet,) = self.puppets(daemon)
        puppet.ask("churn 512 1024")
        daemon.client("dump", puppet.target_pid, "-o", os.path.join(self.folder, "by_hand"))
        self.assertEqual(self.dumps(kind="i"), [])
        puppet.ask("churn 600 1024")
        self.wait_dumps(1, kind="i")

    def test_usr1_dumps_all(self):
        daemon = self.daemon("--exact")
        puppets = self.puppets(daemon, 3)
        for number, puppet in enumerate(puppets):
            puppet.ask(f"keep {number + 10} 100")
        daemon.process.signal(signal.SIGUSR1)
        found = self.wait_dumps(3)
        self.assertEqual({dump.pid: self.kept(dump) for dump in found},
                         {puppet.target_pid: number + 10 for number, puppet in enumerate(puppets)})

    def test_usr2_dumps_the_largest_or_the_pid_that_comes_with_it(self):
        daemon = self.daemon("--exact")
        small, large = self.puppets(daemon, 2)
        small.ask("keep 10 100")
        large.ask("keep 10 1000")
        daemon.process.signal(signal.SIGUSR2)
        daemon.wait_said("^heaptap: wrote ")
        self.assertEqual([dump.pid for dump in self.dumps()], [large.target_pid])
        sigqueue(daemon.process.pid, signal.SIGUSR2, small.target_pid)
        daemon.wait_said("^heaptap: wrote ", count=2)
        self.assertEqual({dump.pid for dump in self.dumps()}, {small.target_pid, large.target_pid})
        sigqueue(daemon.process.pid, signal.SIGUSR2, os.getpid())
        daemon.wait_said(f"^heaptap: process {os.getpid()} is not recorded")


class Retention(TriggersCase):
    def dump_times(self, daemon, times):
        done = daemon.process.stderr().count("heaptap: wrote ")
        for number in range(times):
            daemon.process.signal(signal.SIGUSR1)
            daemon.wait_said("^heaptap: wrote ", count=done + number + 1)

    def test_number(self):
        """The newest stay."""
        daemon = self.daemon("--exact", "--max-files", "3")
        self.puppets(daemon)
        self.dump_times(daemon, 5)
        wait_until(lambda: len(self.dumps()) == 3, "three are left")
        self.assertEqual([dump.sequence for dump in self.dumps()], [2, 3, 4])

    def test_bytes(self):
        daemon = self.daemon("--exact")
        self.puppets(daemon)
        self.dump_times(daemon, 1)
        (dump,) = self.dumps()
        size = os.stat(dump.path).st_size
        daemon.stop()
        daemon.start("--max-bytes", size * 5 // 2)
        self.dump_times(daemon, 4)
        wait_until(lambda: len(self.dumps()) == 2, "two are left")

    def test_age(self):
        """Old dumps go although no new one comes, all but the last; what is not ours stays."""
        daemon = self.daemon("--exact", "--max-age", "2s")
        self.puppets(daemon)
        stranger = os.path.join(daemon.state_folder, "notes.txt")
        with open(stranger, "w", encoding="ascii"):
            os.utime(stranger, (0, 0))
        self.dump_times(daemon, 2)
        self.assertEqual(len(self.dumps()), 2)
        wait_until(lambda: len(self.dumps()) < 2, "the old one is gone")
        self.assertEqual([dump.sequence for dump in self.dumps()], [1])
        self.assertTrue(os.path.exists(stranger))

    def test_reload(self):
        """SIGHUP changes the bounds, and what is beyond them goes."""
        daemon = self.daemon("--exact")
        self.puppets(daemon)
        self.dump_times(daemon, 4)
        with open(daemon.configuration, "w", encoding="ascii") as file:
            file.write("max-files=1\n")
        daemon.process.signal(signal.SIGHUP)
        daemon.wait_said("read the configuration again")
        wait_until(lambda: len(self.dumps()) == 1, "one is left")
