# SPDX-License-Identifier: Apache-2.0
"""Options that change what a dump looks like or what is recorded beside it."""

import json
import os
import re

import symbols
from harness import target
from walkthrough import KI, OnHeaptap, OnJemalloc, Steering, held

BLOCK = 1000
BLOCK_CLASS = KI


class Names(Steering):
    def test_pid_namespace(self):
        """prof_pid_namespace: its inode stands before the PID."""
        process = self.steered("prof:true,lg_prof_sample:0,prof_prefix:named,prof_pid_namespace:true")
        self.assert_answers(process, ("call prof.dump", "0"))
        inode = re.search(r"\d+", os.readlink("/proc/self/ns/pid")).group()
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("named")],
                         [f"named.{inode}.{process.target_pid}.0.m0.heap"])

    def test_long_prefix(self):
        """As long as a path may be: nothing is cut."""
        folder = self.path("f" * 200)
        prefix = folder
        while len(prefix) < 2500:
            prefix = os.path.join(prefix, "d" * 200)
        os.makedirs(prefix)
        process = self.steered("prof:true,lg_prof_sample:0,prof_prefix:" + os.path.join(prefix, "p"))
        self.assert_answers(process, ("call prof.dump", "0"))
        self.assertEqual(os.listdir(prefix), [f"p.{process.target_pid}.0.m0.heap"])


class NamesHeaptap(Names, OnHeaptap):
    pass


class Frames(OnHeaptap, Steering):
    def test_prof_bt_max(self):
        """So many of the program's frames, the innermost: call paths that differ further out become one."""
        process = self.steered("prof:true,lg_prof_sample:0,prof_bt_max:3")
        self.assert_answers(process, (f"deep 20 {BLOCK}", "kept 20"), ("write string prof.dump short.prof", "0"))
        dump = self.dump_named("short.prof")
        self.assertLessEqual(max(len(stack.frames) for stack in dump.stacks), 3)
        through = symbols.stacks_through(dump, "keep_deep")
        # keep_blocks, keep_deep, and who called that: for one of them another function, else keep_deep.
        self.assertEqual(sorted(stack.total.objects for stack in through), [1, 19])

    def test_prof_unbias_false(self):
        """What was sampled, not what readers need to find the estimates."""
        process = self.steered("prof:true,lg_prof_sample:12,prof_unbias:false", env={"HEAPTAP_CONF": "prof_seed:7"})
        self.assert_answers(process, (f"keep 4000 {BLOCK}", "kept 4000"), ("write string prof.dump raw.prof", "0"))
        objects, size = held(self.dump_named("raw.prof"), "keep_blocks")
        self.assertEqual(size, objects * BLOCK_CLASS)
        # p = 1 - exp(-1024 / 4096) = 0.2212; five standard errors of a binomial law.
        self.assertAlmostEqual(objects, 4000 * 0.2212, delta=5 * (4000 * 0.2212 * 0.7788) ** 0.5)


class Recent(OnHeaptap):
    CONF = "prof:true,lg_prof_sample:0"

    def records(self, maximum, *arguments):
        process = self.start(target("recent"), str(maximum), *arguments, conf=self.CONF)
        self.assertEqual(process.wait(), 0, process.stderr())
        return json.loads(process.stdout())

    def test_latest_samples(self):
        """The latest three of ten: who allocated, who freed, when, on which call path."""
        records = self.records(3)
        self.assertEqual((records["sample_interval"], records["recent_alloc_max"]), (1, 3))
        samples = records["recent_alloc"]
        self.assertEqual([sample["usize"] for sample in samples], [BLOCK_CLASS] * 3)
        self.assertEqual([sample["released"] for sample in samples], [False, True, False])
        self.assertEqual({sample["alloc_thread_name"] for sample in samples}, {"recorder"})
        times = [sample["alloc_time"] for sample in samples]
        self.assertEqual(times, sorted(times))
        freed = samples[1]
        self.assertGreater(freed["dalloc_time"], times[2])
        self.assertEqual(freed["dalloc_thread_uid"], freed["alloc_thread_uid"])
        # One instruction of keep_block and one of drop_block; the callers are main's, and then the same.
        self.assertEqual(len({sample["alloc_trace"][0] for sample in samples}), 1)
        self.assertNotEqual(freed["dalloc_trace"][0], freed["alloc_trace"][0])
        self.assertEqual(freed["dalloc_trace"][2:], freed["alloc_trace"][2:])

    def test_all_there_are(self):
        samples = self.records(-1)["recent_alloc"]
        self.assertEqual(sum(sample["usize"] == BLOCK_CLASS for sample in samples), 10)
        self.assertEqual(sum(sample["released"] for sample in samples), 5)

    def test_none(self):
        self.assertEqual(self.records(0)["recent_alloc"], [])

    def test_log(self):
        """prof.log_start to prof.log_stop: what was freed in between."""
        self.records(0, "log.json")
        with open(os.path.join(self.folder, "log.json"), encoding="utf-8") as file:
            log = json.load(file)
        os.unlink(os.path.join(self.folder, "log.json"))
        self.assertEqual(log["info"]["lost_allocations"], 0)
        self.assertEqual([entry["usize"] for entry in log["allocations"]], [BLOCK_CLASS] * 5)
        self.assertEqual(log["threads"][log["allocations"][0]["free_thread"]]["thr_name"], "recorder")
        for entry in log["allocations"]:
            self.assertGreater(entry["free_timestamp"], entry["alloc_timestamp"])
            self.assertNotEqual(entry["alloc_trace"], entry["free_trace"])

    def test_overwritten_records_are_counted(self):
        process = self.heaptap("run", "-o", "collector", "--map-size", "records=4", "--", target("recent"), "-1",
                               "log.json", env={"MALLOC_CONF": self.CONF})
        self.assertEqual(process.wait(), 0, process.stderr())
        self.assertEqual(len(json.loads(process.stdout())["recent_alloc"]), 4)
        with open(os.path.join(self.folder, "log.json"), encoding="utf-8") as file:
            self.assertGreaterEqual(json.load(file)["info"]["lost_allocations"], 6)
        os.unlink(os.path.join(self.folder, "log.json"))


class Intervals:
    def test_stats_interval(self):
        """stats_interval: statistics each so many bytes; the same number of times, but for what the program's start
        allocates."""
        process = self.start("python3", "-c", "x = [bytearray(1000) for i in range(20000)]",
                             conf="stats_interval:1048576,stats_interval_opts:mdablxeh")
        self.assertEqual(process.wait(), 0)
        self.assertAlmostEqual(process.stderr().count("___ Begin jemalloc statistics ___"), 28, delta=4)


class IntervalsJemalloc(Intervals, OnJemalloc):
    pass


class IntervalsHeaptap(Intervals, OnHeaptap):
    pass
