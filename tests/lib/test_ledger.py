# SPDX-License-Identifier: Apache-2.0
"""The ledger of tests/repeat counts each test under each condition, and survives a stop."""

import os
import tempfile
import unittest

from ledger import Ledger, bound
from named_tests import Result


def ledger_of(*rounds, condition="quiet"):
    ledger = Ledger("1234")
    for results in rounds:
        ledger.add(condition, "unit:*", results)
    return ledger


class Counting(unittest.TestCase):
    def test_runs_and_failures(self):
        ledger = ledger_of([Result("a"), Result("b", "wrong")], [Result("a"), Result("b")], [Result("a"), Result("b", "late")])
        self.assertEqual(ledger.tests, {"quiet": {"a": {"runs": 3, "failures": []},
                                                  "b": {"runs": 3, "failures": ["wrong", "late"]}}})
        self.assertEqual(ledger.finished("quiet", "unit:*"), 3)

    def test_conditions_are_apart(self):
        ledger = ledger_of([Result("a", "wrong")])
        ledger.add("load 4", "unit:*", [Result("a")])
        self.assertEqual([row[0] for row in ledger.failed()], ["quiet"])
        self.assertEqual((ledger.finished("load 4", "unit:*"), ledger.finished("load 4", "e2e:x")), (1, 0))

    def test_what_failed_most_comes_first(self):
        ledger = ledger_of([Result("a", "wrong"), Result("b", "wrong")], [Result("a"), Result("b", "wrong"), Result("c")])
        self.assertEqual([row[1] for row in ledger.failed()], ["b", "a"])


class Table(unittest.TestCase):
    def test_nothing_failed(self):
        self.assertEqual(ledger_of(*[[Result("a"), Result("b")]] * 10).table(),
                         ["quiet: 2 tests did not fail in 10 runs: each fails in less than 26 % of runs (95 % confidence)"])

    def test_failures_are_counted_by_message(self):
        lines = ledger_of([Result("a", "wrong")], [Result("a", "late")], [Result("a", "wrong")], [Result("a")]).table()
        self.assertEqual([line.strip() for line in lines[1:]], ["3/4     quiet      a", "2 x wrong", "1 x late"])

    def test_tests_that_ran_more_rarely_have_a_line_of_their_own(self):
        lines = ledger_of([Result("a"), Result("b")], [Result("a")]).table()
        self.assertEqual([line.split(":")[1].strip() for line in lines],
                         ["1 tests did not fail in 1 runs", "1 tests did not fail in 2 runs"])

    def test_a_test_that_failed_is_not_among_those_that_did_not(self):
        self.assertFalse([line for line in ledger_of([Result("a", "wrong")]).table() if "did not fail" in line])


class Bound(unittest.TestCase):
    def test_rule_of_three(self):
        for runs in (100, 200, 1000):
            self.assertAlmostEqual(bound(runs), 3 / runs, delta=0.1 / runs)

    def test_the_chance_to_see_no_failure_is_one_in_twenty(self):
        for runs in (1, 10, 200):
            self.assertAlmostEqual((1 - bound(runs)) ** runs, 0.05)


class File(unittest.TestCase):
    def test_goes_on_where_it_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "new", "ledger.json")
            ledger_of([Result("a", "wrong")]).save(path)
            again = Ledger.load(path)
            again.add("quiet", "unit:*", [Result("a")])
            again.save(path)
            last = Ledger.load(path)
            self.assertEqual(os.listdir(os.path.dirname(path)), ["ledger.json"])
        self.assertEqual((last.version, last.finished("quiet", "unit:*")), ("1234", 2))
        self.assertEqual(last.tests, {"quiet": {"a": {"runs": 2, "failures": ["wrong"]}}})
