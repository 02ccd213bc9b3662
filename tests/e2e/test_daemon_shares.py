# SPDX-License-Identifier: Apache-2.0
"""Shares: what one process takes of the maps in the kernel, another one does not miss.

Recording is exact; error bounds: none.
"""

import signal

import symbols
from daemon import EXACT, DaemonCase
from harness import target, wait_until

SHARES = ("live_share", "tallies_share")


class SharesCase(DaemonCase):
    def entry(self, daemon, pid):
        return wait_until(lambda: daemon.processes().get(pid), f"{pid} is recorded")

    def wait_losing(self, daemon, pid, reason):
        wait_until(lambda: self.entry(daemon, pid)["losses"].get(reason), f"{pid} has losses for {reason}")


class Shares(SharesCase):
    def test_live_objects_of_a_quiet_process(self):
        """A noisy process has as many as are free besides: half of the map. Then comes a second one, and gets a third
        of it; and a quiet one loses nothing, before or after them."""
        daemon = self.daemon("--exact", "--map-size", "live=4096", losses_allowed=("live_share",))
        early = self.preloaded_puppet(env=EXACT)
        early.ask("keep 100 100")
        noisy = self.preloaded_puppet(env=EXACT)
        noisy.ask("keep 50000 100")
        other = self.preloaded_puppet(env=EXACT)
        other.ask("keep 50000 100")
        late = self.preloaded_puppet(env=EXACT)
        late.ask("keep 100 100")
        early.ask("keep 100 100")
        for puppet, kept in ((early, 200), (late, 100)):
            entry = self.entry(daemon, puppet.target_pid)
            self.assertEqual((entry["live_objects"], entry["losses"]), (kept, {}))
        for puppet, least in ((noisy, 1900), (other, 900)):
            entry = self.entry(daemon, puppet.target_pid)
            self.assertGreaterEqual(entry["live_objects"], least)
            self.assertLessEqual(entry["live_objects"], 2048)
            self.assertEqual(entry["live_objects"] + entry["losses"]["live_share"], 50000)
        # What they give back is there for others: the map is swept when the first of them finds no room.
        noisy.ask("drop")
        other.ask("drop")

        def has_room():
            lost = self.entry(daemon, late.target_pid)["losses"]
            late.ask("keep 100 200")
            return self.entry(daemon, late.target_pid)["losses"] == lost
        wait_until(has_room, "there is room")
        before = self.entry(daemon, late.target_pid)
        late.ask("keep 600 200")
        entry = self.entry(daemon, late.target_pid)
        self.assertEqual(entry["live_objects"], before["live_objects"] + 600)
        self.assertEqual(entry["losses"], before["losses"])

    def test_contexts_of_a_quiet_process(self):
        """The same with the map of tallies: the noisy one has 4096 call paths, the quiet one 16."""
        daemon = self.daemon("--exact", "--map-size", "tallies=1024", "--map-size", "stacks=65536",
                             losses_allowed=("tallies_share",))
        noisy = self.preloaded(target("paced"), 20000, 0, 1000, 12, env=EXACT)
        self.wait_losing(daemon, noisy.pid, "tallies_share")
        quiet = self.preloaded(target("paced"), 1000, 1, 1000, 4, env=EXACT)
        self.assertEqual(quiet.wait(), 0)
        (_, objects, _, _, live, _, _, _) = quiet.stdout().splitlines()[1].split()
        noisy.signal(signal.SIGTERM)
        self.assertEqual(noisy.wait(), 0)
        wait_until(lambda: len(daemon.ended()) == 2, "both have ended")
        ended = {entry["pid"]: entry for entry in daemon.ended()}
        entry = ended[quiet.pid]
        self.assertEqual((entry["samples"], entry["live_objects"], entry["losses"]), (int(objects), int(live), {}))
        entry = ended[noisy.pid]
        self.assertLessEqual(entry["contexts"], 512)
        allocated = int(noisy.stdout().splitlines()[1].split()[1])
        self.assertEqual(entry["samples"] + sum(entry["losses"].values()), allocated)

    def test_shares_by_rule(self):
        daemon = self.daemon("--exact", "--rule", "comm=puppet max-live=100", "--rule", "comm=paced max-contexts=8",
                             losses_allowed=SHARES)
        puppet = self.preloaded_puppet(env=EXACT)
        self.entry(daemon, puppet.target_pid)
        puppet.ask("keep 500 100")
        entry = self.entry(daemon, puppet.target_pid)
        self.assertEqual((entry["live_objects"], entry["losses"]), (100, {"live_share": 400}))
        paced = self.preloaded(target("paced"), 1000, 0, 1000, 6, env=EXACT)
        self.wait_losing(daemon, paced.pid, "tallies_share")
        self.assertLessEqual(self.entry(daemon, paced.pid)["contexts"], 8)


class Threads(SharesCase):
    THREADS = 8000

    def test_tallies_of_threads_that_have_ended(self):
        """8000 threads, one after the other, with a few tallies each, in a map of 4096: they are folded into one, and
        the totals are right."""
        daemon = self.daemon("--exact", "--map-size", "tallies=4096", "--dump-at-exit", "always")
        program = self.preloaded(target("short_threads"), self.THREADS, 500, talks=True, env=EXACT)
        objects, size_bytes = map(int, program.answer().split()[1:])
        self.assertEqual(objects, self.THREADS * 8)
        self.assertEqual(self.entry(daemon, program.pid)["losses"], {})
        self.assertEqual(program.wait(), 0)
        wait_until(daemon.ended, "it has ended")
        dump = self.only_dump(program.pid, "f")
        ever = [stack.ever for stack in symbols.stacks_through(dump, "allocate_in_thread")]
        self.assertEqual(sum(count.objects for count in ever), objects)
        self.assertEqual(sum(count.bytes for count in ever), size_bytes)
        self.assertLess(len(dump.threads), self.THREADS // 2)
