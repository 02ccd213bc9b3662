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

    def test_room_for_all_loses_nothing(self):
        """The control: the same program, the same way, with room enough."""
        session = self.heaptap("run", "--exact", "--map-size", "live=4096", "--", target("contexts"), "10")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(kind="f")
        self.assertEqual(dump.warnings, [])
        self.assertEqual(sum(stack.total.objects for stack in symbols.stacks_through(dump, "descend")), 1024)
