# SPDX-License-Identifier: Apache-2.0
"""Names of tests mean what they say, and no failure of a program goes unnoticed."""

import contextlib
import os
import select
import tempfile
import unittest

import named_tests
from named_tests import NamedTest, Result

GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1"><testsuite name="Sum">
<testcase name="Adds" status="run" result="completed" classname="Sum"/>
<testcase name="Carries" status="run" result="completed" classname="Sum">
<failure message="sum_test.cc:7&#x0A;Expected equality" type=""><![CDATA[sum_test.cc:7]]></failure></testcase>
<testcase name="DISABLED_Old" status="notrun" result="suppressed" classname="Sum"/>
</testsuite></testsuites>"""

PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="run.test_x" name="test_good" time="1"/>
<testcase classname="run.test_x" name="test_skipped"><skipped message="no kernel"/></testcase>
<testcase classname="run.test_x" name="test_bad"><failure message="assert 1 == 2">lines</failure></testcase>
<testcase classname="run.test_x" name="test_bad"><error message="failed on teardown">lines</error></testcase>
</testsuite></testsuites>"""


class Names(unittest.TestCase):
    def test_programs(self):
        self.assertEqual(named_tests.parse("unit:Sum.*").command, ("build/tests/unit/unit_tests", "--gtest_filter=Sum.*"))
        self.assertEqual(named_tests.parse("allocator:asan:Heap.A:Heap.B").command,
                         ("build/test-allocator/asan/unit", "--gtest_filter=Heap.A:Heap.B"))
        self.assertEqual(named_tests.parse("stress:tsan").targets, ("build/test-allocator/tsan/stress",))
        self.assertEqual(named_tests.parse("e2e:tests/e2e/a.py::test_b[x:1]").command[-1],
                         "E2E_TESTS=tests/e2e/a.py::test_b[x:1]")
        self.assertEqual(named_tests.parse("lint:layers").command[-1], "lint-layers")

    def test_statistics_of_samples_need_another_option(self):
        options = [dict(named_tests.parse(f"allocator:plain:{name}").environment)["MALLOC_CONF"]
                   for name in ("SampleStatisticsTest.*", "Heap.*")]
        self.assertEqual(options, ["prof:true,prof_stats:true", "prof:true"])

    def test_mistakes(self):
        for name in ("Sum.*", "unit:", "units:Sum.*", "allocator:Heap.*", "allocator:plain:", "allocator:guest:x", "stress:fast"):
            with self.assertRaises(ValueError, msg=name):
                named_tests.parse(name)


class Reports(unittest.TestCase):
    def test_of_googletest(self):
        self.assertEqual(named_tests.read_report(GTEST), [Result("Sum.Adds"), Result("Sum.Carries", "sum_test.cc:7")])

    def test_of_pytest(self):
        self.assertEqual(named_tests.read_report(PYTEST, "e2e:"),
                         [Result("e2e:run.test_x.test_good"), Result("e2e:run.test_x.test_bad", "assert 1 == 2")])


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.log = os.path.join(self.root, "log")

    def run_script(self, script, seconds=None, reports_tests=True):
        test = NamedTest("unit:X", ("sh", "-c", script), reports_tests=reports_tests)
        return named_tests.run(test, self.root, self.log, seconds)

    def report(self, text):
        return f"cat >${{GTEST_OUTPUT#xml:}}x.xml <<'END'\n{text}\nEND\n"

    def test_what_was_reported(self):
        self.assertEqual(self.run_script(self.report(GTEST) + "exit 1"),
                         [Result("unit:Sum.Adds"), Result("unit:Sum.Carries", "sum_test.cc:7")])

    def test_a_death_is_that_of_the_last_test(self):
        self.assertEqual(self.run_script("printf '[ RUN      ] A.B\\n[ RUN      ] A.C\\nsegmentation fault\\n\\n'; exit 139"),
                         [Result("unit:A.C", "exit status 139: segmentation fault")])

    def test_a_failure_that_no_test_reported(self):
        passed = GTEST.replace("<failure", "<properties").replace("</failure", "</properties")
        self.assertEqual(self.run_script(self.report(passed) + "echo leak; exit 1")[-1], Result("unit:X", "exit status 1: leak"))

    def test_no_test_ran(self):
        self.assertEqual(self.run_script("true"), [Result("unit:X", "no test of this name ran")])

    def test_a_program_without_reports(self):
        self.assertEqual(self.run_script("true", reports_tests=False), [Result("unit:X")])

    def test_a_torn_report(self):
        self.assertEqual(self.run_script(self.report(GTEST[:200])), [Result("unit:x.xml", "the report is torn")])

    def test_a_program_that_does_not_end_is_ended_with_its_children(self):
        path, seconds = os.path.join(self.root, "child"), 0.1
        while not os.path.exists(path):  # a busy machine may not have come that far
            seconds *= 2
            results = self.run_script("sleep 1000 & echo $! >new; mv new child; wait", seconds)
        self.assertEqual(results, [Result("unit:X", f"did not end in {seconds} s")])
        with open(path, encoding="utf-8") as file, contextlib.suppress(ProcessLookupError):
            child = os.pidfd_open(int(file.read()))
            self.addCleanup(os.close, child)
            self.assertEqual(select.select([child], [], [], 60)[0], [child])

    def test_phases(self):
        folder = os.path.join(self.root, named_tests.PHASES)
        os.makedirs(f"{folder}/test-unit.reports/7")
        for path, text in (("test-unit.reports/7/x.xml", GTEST), ("test-unit", "3 2 1\n2\n"), ("lint", "1 1 1\n0\n"),
                           ("test-web", "1 1 1\n2\n")):
            with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                file.write(text)
        self.assertEqual(named_tests.read_phases(self.root, ["test-unit", "lint", "test-web", "test-fuzz"]),
                         [Result("test-unit:Sum.Adds"), Result("test-unit:Sum.Carries", "sum_test.cc:7"), Result("test-unit"),
                          Result("lint"), Result("test-web", "exit status 2"), Result("test-fuzz", "exit status unknown")])
