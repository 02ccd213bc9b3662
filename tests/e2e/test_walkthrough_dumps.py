# SPDX-License-Identifier: Apache-2.0
"""jemalloc's documented ways to a dump: gdump at new maxima, by hand with and without a name, profiling that is
activated in code, and the recipe "dump, activate, wait, deactivate, dump, compare".

Everything is recorded (lg_prof_sample:0). Blocks of 64 KiB and more have no ready lists, so that activation takes
effect with the next one: no error bounds, but where a test says so.
"""

import errno
import os

from harness import target
from walkthrough import KI, MI, OnHeaptap, OnJemalloc, Steering, held, jeprof_table

BLOCK = 64 * KI
# heaptap: a thread notices a change when its ready blocks of that size are used up.
READY_BLOCKS = 16


class NewMaxima(Steering):
    """prof_gdump: `u` dumps."""

    CONF = "prof:true,prof_gdump:true,prof_prefix:high,lg_prof_sample:0"

    def high_dumps(self):
        return self.own_dumps(kind="u")

    def grow(self, process, blocks):
        """New dumps that this many kept blocks of 4 MiB cause."""
        before = len(self.high_dumps())
        self.assert_answers(process, (f"keep {blocks} {4 * MI}", f"kept {blocks}"))
        return self.high_dumps()[before:]

    def test_each_new_maximum(self):
        """One for each step up, in order, with what was live just before or after the step."""
        process = self.steered(self.CONF)
        self.assert_answers(process, ("read bool opt.prof_gdump", "0 true"), ("read bool prof.gdump", "0 true"))
        for kept in range(8):
            (dump,) = self.grow(process, 1)
            objects, _ = held(dump.read(), "keep_blocks")
            self.assertIn(objects, (kept, kept + 1), dump.path)
        self.assertEqual([dump.number for dump in self.high_dumps()], list(range(len(self.high_dumps()))))
        self.assertEqual(process.wait(), 0, process.stderr())
        self.assertEqual([dump for dump in self.own_dumps() if dump.kind != "u"], [])

    def test_none_below_the_maximum(self):
        """Memory shrinks, and grows again to less than it was: no dump."""
        process = self.steered(self.CONF)
        self.grow(process, 8)
        before = self.names_of_dumps()
        self.assert_answers(process, ("drop", "dropped 8"))
        self.assertEqual(self.names_of_dumps(), before)
        self.assertEqual(self.grow(process, 7), [])
        self.assertGreaterEqual(len(self.grow(process, 4)), 1)

    def test_switched_by_mallctl(self):
        """prof.gdump: the old value is returned; while it is off maxima are noticed but not dumped."""
        process = self.steered(self.CONF)
        self.assertEqual(len(self.grow(process, 1)), 1)
        self.assert_answers(process, ("swap bool prof.gdump false", "0 true"))
        self.assertEqual(self.grow(process, 4), [])
        self.assert_answers(process, ("drop", "dropped 5"), ("swap bool prof.gdump true", "0 false"))
        self.assertEqual(self.grow(process, 4), [])
        self.assert_answers(process, ("swap bool prof.gdump true", "0 true"))
        self.assertGreaterEqual(len(self.grow(process, 3)), 1)

    def test_switched_on_later(self):
        """Off at first (the default)."""
        process = self.steered("prof:true,prof_prefix:high,lg_prof_sample:0")
        self.assertEqual(self.grow(process, 2), [])
        self.assert_answers(process, ("swap bool prof.gdump true", "0 false"))
        self.assertEqual(len(self.grow(process, 1)), 1)


class NewMaximaJemalloc(NewMaxima, OnJemalloc):
    pass


class NewMaximaHeaptap(NewMaxima, OnHeaptap):
    pass


class ByHand(Steering):
    CONF = "prof:true,prof_prefix:hand,lg_prof_sample:0"

    def test_with_and_without_a_name(self):
        """A given name is taken as it is and takes no number; the others count up from 0."""
        process = self.steered(self.CONF)
        self.assert_answers(process, (f"keep 1 {BLOCK}", "kept 1"), ("call prof.dump", "0"),
                            (f"keep 1 {BLOCK}", "kept 1"), ("write string prof.dump given.prof", "0"),
                            (f"keep 1 {BLOCK}", "kept 1"), ("call prof.dump", "0"))
        self.assertEqual(process.wait(), 0, process.stderr())
        self.assertEqual(self.names_of_dumps(), [f"hand.{process.target_pid}.{i}.m{i}.heap" for i in (0, 1)])
        self.assertEqual([held(dump.read(), "keep_blocks")[0] for dump in self.own_dumps()], [1, 3])
        self.assertEqual(held(self.dump_named("given.prof"), "keep_blocks"), (2, 2 * BLOCK))

    def test_prefix_by_mallctl(self):
        """prof.prefix: from the next dump on."""
        process = self.steered(self.CONF)
        self.assert_answers(process, ("call prof.dump", "0"), ("write string prof.prefix other", "0"),
                            ("call prof.dump", "0"))
        pid = process.target_pid
        self.assertEqual(self.names_of_dumps(), [f"hand.{pid}.0.m0.heap", f"other.{pid}.1.m1.heap"])

    def test_no_prefix(self):
        """prof_prefix: (empty): no automatic name, EFAULT; a given name works."""
        process = self.steered("prof:true,prof_prefix:,lg_prof_sample:0")
        self.assert_answers(process, ("call prof.dump", str(errno.EFAULT)),
                            ("write string prof.dump given.prof", "0"))
        self.assertEqual(process.wait(), 0, process.stderr())
        self.assertEqual(self.names_of_dumps(), [])
        self.dump_named("given.prof")

    def test_an_existing_file_is_replaced(self):
        process = self.steered(self.CONF)
        with open(self.path("given.prof"), "w", encoding="ascii") as file:
            file.write("x" * MI)
        self.assert_answers(process, (f"keep 1 {BLOCK}", "kept 1"), ("write string prof.dump given.prof", "0"))
        self.assertEqual(held(self.dump_named("given.prof"), "keep_blocks"), (1, BLOCK))
        self.assertLess(os.path.getsize(self.path("given.prof")), MI)


class ByHandJemalloc(ByHand, OnJemalloc):
    pass


class ByHandHeaptap(ByHand, OnHeaptap):
    pass


class Activation(Steering):
    """prof:true,prof_active:false, and prof.active written by the program."""

    CONF = "prof:true,prof_active:false,prof_prefix:act,lg_prof_sample:0"

    def test_only_the_steady_state(self):
        """What the start allocated is not in the dump; what came after the activation is, all of it."""
        process = self.steered(self.CONF)
        self.assert_answers(process, ("read bool opt.prof_active", "0 false"), (f"start 100 {BLOCK}", "started 100"),
                            ("start 1000 100", "started 1000"), ("swap bool prof.active true", "0 false"),
                            (f"keep 50 {BLOCK}", "kept 50"), ("write string prof.dump steady.prof", "0"))
        dump = self.dump_named("steady.prof")
        self.assertEqual(held(dump, "start_blocks"), (0, 0))
        self.assertEqual(held(dump, "keep_blocks"), (50, 50 * BLOCK))
        rows, _ = jeprof_table(self, target("steered"), self.path("steady.prof"))
        self.assertEqual(rows["keep_blocks"], (50 * BLOCK, 50 * BLOCK))
        self.assertNotIn("start_blocks", rows)

    def test_small_blocks(self):
        """The same with 1000 blocks of 1 KiB in each of three phases: up to 16 ready blocks notice later."""
        process = self.steered(self.CONF)
        self.assert_answers(process, ("start 1000 1024", "started 1000"), ("write bool prof.active true", "0"),
                            ("keep 1000 1024", "kept 1000"), ("write bool prof.active false", "0"),
                            ("start 1000 1024", "started 1000"), ("write string prof.dump small.prof", "0"))
        dump = self.dump_named("small.prof")
        self.assertLessEqual(1000 - READY_BLOCKS, held(dump, "keep_blocks")[0])
        self.assertLessEqual(held(dump, "start_blocks")[0], READY_BLOCKS)

    def test_activate_wait_deactivate_dump_compare(self):
        """The wiki's recipe; instead of 30 seconds the wait is for the work to be done."""
        process = self.steered(self.CONF)
        self.assert_answers(
            process, (f"start 20 {BLOCK}", "started 20"), ("call prof.dump", "0"),
            ("swap bool prof.active true", "0 false"), (f"keep 30 {BLOCK}", "kept 30"),
            (f"churn 1000 {BLOCK}", "churned 1000"), ("swap bool prof.active false", "0 true"),
            (f"start 40 {BLOCK}", "started 40"), ("call prof.dump", "0"))
        first, second = [dump.path for dump in self.own_dumps(kind="m")]
        rows, growth = jeprof_table(self, f"--base={first}", target("steered"), second)
        self.assertEqual(growth, 30 * BLOCK)
        self.assertEqual(rows["keep_blocks"], (30 * BLOCK, 30 * BLOCK))
        self.assertNotIn("start_blocks", rows)
        self.assertNotIn("churn_blocks", rows)

    def test_deactivated_blocks_are_still_taken_off(self):
        """What was recorded and is freed while profiling is off is gone from the next dump."""
        process = self.steered(self.CONF)
        self.assert_answers(process, ("write bool prof.active true", "0"), (f"keep 30 {BLOCK}", "kept 30"),
                            ("write bool prof.active false", "0"), ("drop", "dropped 30"),
                            ("write string prof.dump gone.prof", "0"))
        self.assertEqual(held(self.dump_named("gone.prof"), "keep_blocks"), (0, 0))


class ActivationJemalloc(Activation, OnJemalloc):
    pass


class ActivationHeaptap(Activation, OnHeaptap):
    pass
