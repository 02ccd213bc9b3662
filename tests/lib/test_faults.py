# SPDX-License-Identifier: Apache-2.0
"""A fault is applied once and undone completely, and a list that does not fit the sources is noticed."""

import glob
import json
import os
import tempfile
import unittest

from faults import Copy, read_fault, read_faults

FAULT = {"file": "sum.cc", "old": "a + b", "new": "a - b", "why": "the wrong operator", "tests": ["unit:Sum.*"]}


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def contents(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                found[os.path.relpath(path, root)] = (file.read(), os.stat(path).st_mtime_ns)
    return found


class Lists(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        write(f"{self.root}/sum.cc", "return a + b;\n")

    def problems(self, *entries):
        write(f"{self.root}/list.jsonl", "".join(json.dumps(entry) + "\n" for entry in entries))
        faults, problems = read_faults([f"{self.root}/list.jsonl"], self.root)
        self.assertEqual(len(faults) + len(problems), len(entries))
        return problems

    def test_a_fault_that_fits(self):
        self.assertEqual(self.problems(FAULT), [])

    def test_mistakes(self):
        for change in ({"old": "b + a"}, {"old": " ", "new": ""}, {"file": "none.cc"}, {"new": "a + b"}, {"tests": []},
                       {"tests": ["Sum.*"]}, {"more": 1}):
            self.assertEqual(len(self.problems({**FAULT, **change})), 1, change)

    def test_the_same_fault_twice(self):
        self.assertEqual(self.problems(FAULT, {**FAULT, "why": "again"}), ["list.jsonl:2: the same fault as list.jsonl:1"])

    def test_a_result_stays_with_its_fault(self):
        keys = [read_fault(json.dumps({**FAULT, **change}), place).key
                for change, place in (({}, "a:1"), ({}, "a:2"), ({"new": "a * b"}, "a:1"), ({"tests": ["unit:Other.*"]}, "a:1"))]
        self.assertEqual((keys[0] == keys[1], len(set(keys))), (True, 3))


class Committed(unittest.TestCase):
    def test_all_lists_fit_the_sources(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        faults, problems = read_faults(sorted(glob.glob(f"{root}/tests/mutations/*.jsonl")), root)
        self.assertEqual(problems, [])
        self.assertGreater(len(faults), 300)


class Restoring(unittest.TestCase):
    def test_all_that_a_fault_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            checkout = f"{folder}/checkout"
            os.makedirs(f"{checkout}/build/vm")
            for name in ("sum.cc", "build/sum.o", "build/lost.o", "build/vm/disk"):
                write(f"{checkout}/{name}", f"a + b of {name}")
                os.utime(f"{checkout}/{name}", (1000, 1000))
            before = contents(checkout)
            copy = Copy(checkout, f"{folder}/scratch")
            copy.keep()
            del before["build/vm/disk"]
            self.assertEqual(contents(copy.root), before)

            copy.apply(read_fault(json.dumps(FAULT), "list:1"))
            self.assertEqual(contents(copy.root)["sum.cc"][0], "a - b of sum.cc")
            self.assertGreater(os.stat(f"{copy.root}/sum.cc").st_mtime, os.stat(f"{copy.root}/build/sum.o").st_mtime)
            write(f"{copy.root}/build/sum.o", "a - b of build/sum.o")
            write(f"{copy.root}/build/new.o", "new")
            os.unlink(f"{copy.root}/build/lost.o")
            copy.restore()
            self.assertEqual(contents(copy.root), before)
            self.assertEqual(contents(checkout)["sum.cc"], before["sum.cc"])
