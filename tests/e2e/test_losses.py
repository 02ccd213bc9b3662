# SPDX-License-Identifier: Apache-2.0
"""Full maps: what could not be recorded is counted by reason, said in the dump and on stderr, and the books balance.

--map-size makes a map too small for what the target does. Error bounds: none.
"""

import books
import symbols
from harness import Case, target


class FullMaps(Case):
    def run_with(self, size, *command):
        session = self.heaptap("run", "--exact", "--map-size", size, "--", *command)
        session.losses_allowed = {"live_full", "tallies_full", "stacks_full", "stack_collision", "events_full"}
        self.assertEqual(session.wait(), 0, session.stderr())
        return session

    def assert_said(self, session, *reasons):
        (entry,) = session.books()
        lost = books.losses(entry)
        self.assertTrue(set(reasons) & set(lost), f"no loss among {reasons}: {lost}")
        dump = self.only_dump(kind="f")
        self.assertTrue(dump.warnings, "the dump has no %warn line")
        self.assertTrue([line for line in session.lines() if line.startswith("heaptap: ") and "full" in line],
                        session.lines())
        return entry, lost, dump

    def test_live_is_full(self):
        session = self.run_with("live=256", target("contexts"), "10")
        entry, lost, dump = self.assert_said(session, "live_full")
        self.assertLessEqual(entry["live_entries"], 256)
        # Every sample is in the books or among the losses.
        self.assertGreaterEqual(entry["samples_allocated"] + lost["live_full"], 1024)
        # jeprof shows the warning and reads on.
        text = self.reader("jeprof", "--text", target("contexts"), dump.path)
        self.assertIn(f"WARNING: {dump.warnings[0]}", text)
        self.assertIn("Total:", text)

    def test_tallies_are_full(self):
        entry, lost, _ = self.assert_said(self.run_with("tallies=64", target("contexts"), "10"), "tallies_full")
        self.assertGreaterEqual(entry["samples_allocated"] + lost["tallies_full"], 1024)

    def test_stacks_are_full(self):
        """The samples are in the books, their call paths are not: they stand under a placeholder."""
        entry, _, dump = self.assert_said(self.run_with("stacks=64", target("contexts"), "10"),
                                          "stacks_full", "stack_collision")
        self.assertGreaterEqual(entry["samples_allocated"], 1024)
        self.assertGreaterEqual(dump.total.objects, 1024)
        self.assertLess(len(symbols.stacks_through(dump, "descend")), 1024)

    def test_room_is_used_again(self):
        """Eight times 60000 blocks, at other addresses each time, freed each time, in a map for 131072: room that frees
        leave behind is used again, and every sample is in the books or among the losses."""
        session = self.puppet_under_heaptap("--exact", "--map-size", "live=131072")
        session.losses_allowed = {"live_full"}
        for size in (64, 128, 256, 512, 1024, 2048, 80, 96):
            session.ask(f"keep 60000 {size}")
            session.ask("drop")
        self.assertEqual(session.wait(), 0, session.stderr())
        (entry,) = session.books()
        lost = books.losses(entry).get("live_full", 0)
        self.assertLess(lost, 240000)
        self.assertGreaterEqual(entry["samples_allocated"] + lost, 480000)
        self.assertLess(entry["samples_allocated"] + lost, 480100)
        self.assertLess(entry["live_entries"], 100)

    def test_room_for_all_loses_nothing(self):
        """The control: the same program, the same way, with room enough."""
        session = self.heaptap("run", "--exact", "--map-size", "live=4096", "--", target("contexts"), "10")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(kind="f")
        self.assertEqual(dump.warnings, [])
        self.assertEqual(sum(stack.total.objects for stack in symbols.stacks_through(dump, "descend")), 1024)


class LostEvents(Case):
    def test_a_collector_that_was_asleep_misses_no_process(self):
        """heaptap is stopped while 50 processes come and go: the ring buffer (24 events) is full, and yet each has its
        final dump. How many events were lost is said."""
        script = "kill -STOP $PPID; for i in $(seq 50); do ls / >/dev/null; done; kill -CONT $PPID"
        session = self.heaptap("run", "--exact", "--map-size", "events=4096", "--", "sh", "-c", script)
        session.losses_allowed = ("events_full",)
        self.assertEqual(session.wait(), 0, session.stderr())
        programs = [entry["tally_live_objects"] for entry in session.books()]
        # The shell, seq, and each ls.
        self.assertGreaterEqual(len(programs), 52)
        self.assertEqual(len(self.dumps(kind="f")), len(programs))
        self.assertRegex(session.stderr(), "events lost")
