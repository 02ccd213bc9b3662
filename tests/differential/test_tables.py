# SPDX-License-Identifier: Apache-2.0
"""The comparison of tables fails when it must: for unknown differences, and for known ones that do not occur."""

import unittest

import mallctl_names
from tables import NO_RESULT, Comparison, Known

JEMALLOC = {"prof.active": {"read": "0", "write": "EPERM"}, "version": {"read": "0"}}
HEAPTAP = {"prof.active": {"read": "0", "write": "EINVAL"}, "version": {"read": "0"}}


def compare(known, heaptap=None):
    comparison = Comparison(known)
    comparison.add("options", JEMALLOC, HEAPTAP if heaptap is None else heaptap)
    return comparison


class Tables(unittest.TestCase):
    def test_equal(self):
        comparison = compare([], JEMALLOC)
        self.assertTrue(comparison.passes)
        self.assertEqual((len(comparison.names), comparison.equal), (2, 3))

    def test_a_difference_that_nobody_knows_fails(self):
        comparison = compare([])
        self.assertFalse(comparison.passes)
        self.assertEqual(comparison.unexplained, [("prof.active", "write", "EPERM", "EINVAL", "options")])

    def test_a_known_difference_passes(self):
        comparison = compare([Known("it is meant", name=r"prof\..*", trial="write", jemalloc="EPERM", heaptap="EINVAL")])
        self.assertTrue(comparison.passes)
        self.assertEqual(len(comparison.explained["it is meant"]), 1)

    def test_patterns_are_for_the_whole(self):
        for changes in ({"name": "prof"}, {"trial": "writ"}, {"jemalloc": "EPER"}, {"heaptap": "INVAL"},
                        {"title": "option"}):
            comparison = compare([Known("it is meant", **changes)])
            self.assertEqual((len(comparison.unexplained), len(comparison.unseen)), (1, 1))

    def test_what_should_make_results_equal_must(self):
        for function, passes in ((lambda text: text[:2], False), (lambda text: text[:1], True)):
            self.assertEqual(compare([Known("it is meant", equal_after=function)]).passes, passes)

    def test_a_known_difference_that_is_not_there_fails(self):
        comparison = compare([Known("it is meant", name="prof.active")], JEMALLOC)
        self.assertEqual((comparison.unexplained, len(comparison.unseen)), ([], 1))
        self.assertFalse(comparison.passes)

    def test_a_known_difference_need_not_be_in_a_sample(self):
        comparison = Comparison([Known("it is meant", name="prof.active")], is_sample=True)
        comparison.add("options", JEMALLOC, JEMALLOC)
        self.assertTrue(comparison.passes)

    def test_a_result_that_is_missing_differs(self):
        comparison = compare([], {"version": {"read": "0"}})
        self.assertEqual([cell.heaptap for cell in comparison.unexplained], [NO_RESULT, NO_RESULT])


class Names(unittest.TestCase):
    def test_names_are_read_from_jemalloc(self):
        names = mallctl_names.of_jemalloc()
        self.assertEqual(len(names), len(set(names)))
        for name in ("version", "prof.active", "arena.<i>.purge", "prof.stats.lextents.<i>.live",
                     "stats.arenas.<i>.bins.<i>.mutex.num_ops", "stats.arenas.<i>.hpa_shard.nonfull_slabs.<i>.ndirty_huge"):
            self.assertIn(name, names)
