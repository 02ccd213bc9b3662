# SPDX-License-Identifier: Apache-2.0
"""Options that change the form of a dump or record more than it."""

import json
import os
import re

import pytest

import symbols
from allocators import KI, assert_answers
from harness import target
from symbols import live

BLOCK = 1000
BLOCK_CLASS = KI
CONF = "prof:true,lg_prof_sample:0"


def test_pid_namespace(lab, heaptap):
    """prof_pid_namespace puts the namespace's inode before the PID."""
    process = heaptap.puppet("prof:true,lg_prof_sample:0,prof_prefix:named,prof_pid_namespace:true")
    assert_answers(process, ("call prof.dump", "0"))
    inode = re.search(r"\d+", os.readlink("/proc/self/ns/pid")).group()
    assert [name for name in os.listdir(lab.folder) if name.startswith("named")] == [
        f"named.{inode}.{process.target_pid}.0.m0.heap"]


def test_long_prefix(heaptap):
    """A prefix with the maximum length of a path is not cut."""
    folder = heaptap.path("f" * 200)
    prefix = folder
    while len(prefix) < 2500:
        prefix = os.path.join(prefix, "d" * 200)
    os.makedirs(prefix)
    process = heaptap.puppet("prof:true,lg_prof_sample:0,prof_prefix:" + os.path.join(prefix, "p"))
    assert_answers(process, ("call prof.dump", "0"))
    assert os.listdir(prefix) == [f"p.{process.target_pid}.0.m0.heap"]


def test_prof_bt_max(heaptap):
    """Keeps this many innermost frames of the program; call paths that differ only further out become one."""
    process = heaptap.puppet("prof:true,lg_prof_sample:0,prof_bt_max:3")
    assert_answers(process, (f"deep 20 {BLOCK}", "kept 20"), ("write string prof.dump short.prof", "0"))
    dump = heaptap.dump_named("short.prof")
    assert max(len(stack.frames) for stack in dump.stacks) <= 3
    through = symbols.stacks_through(dump, "keep_deep")
    # keep_blocks, keep_deep and its caller: once another function, otherwise keep_deep.
    assert sorted(stack.total.objects for stack in through) == [1, 19]


def test_prof_unbias_false(heaptap):
    """The dump has the sampled counts, without the correction for readers."""
    process = heaptap.puppet("prof:true,lg_prof_sample:12,prof_unbias:false", env={"HEAPTAP_CONF": "prof_seed:7"})
    assert_answers(process, (f"keep 4000 {BLOCK}", "kept 4000"), ("write string prof.dump raw.prof", "0"))
    objects, size = live(heaptap.dump_named("raw.prof"), "keep_blocks")
    assert size == objects * BLOCK_CLASS
    # p = 1 - exp(-1024 / 4096) = 0.2212; five standard errors of a binomial law.
    assert objects == pytest.approx(4000 * 0.2212, abs=5 * (4000 * 0.2212 * 0.7788) ** 0.5, rel=0)


def records_of(heaptap, maximum, *arguments):
    process = heaptap.start(target("recent"), str(maximum), *arguments, conf=CONF)
    process.ends()
    return json.loads(process.stdout())


def test_latest_samples(heaptap):
    """The latest three of ten samples: allocating and freeing thread, times, call paths."""
    records = records_of(heaptap, 3)
    assert (records["sample_interval"], records["recent_alloc_max"]) == (1, 3)
    samples = records["recent_alloc"]
    assert [sample["usize"] for sample in samples] == [BLOCK_CLASS] * 3
    assert [sample["released"] for sample in samples] == [False, True, False]
    assert {sample["alloc_thread_name"] for sample in samples} == {"recorder"}
    times = [sample["alloc_time"] for sample in samples]
    assert times == sorted(times)
    freed = samples[1]
    assert freed["dalloc_time"] > times[2]
    assert freed["dalloc_thread_uid"] == freed["alloc_thread_uid"]
    # One instruction of keep_block and one of drop_block; the callers are main's, and then the same.
    assert len({sample["alloc_trace"][0] for sample in samples}) == 1
    assert freed["dalloc_trace"][0] != freed["alloc_trace"][0]
    assert freed["dalloc_trace"][2:] == freed["alloc_trace"][2:]


def test_all_there_are(heaptap):
    samples = records_of(heaptap, -1)["recent_alloc"]
    assert sum(sample["usize"] == BLOCK_CLASS for sample in samples) == 10
    assert sum(sample["released"] for sample in samples) == 5


def test_none(heaptap):
    assert records_of(heaptap, 0)["recent_alloc"] == []


def test_log(lab, heaptap):
    """From prof.log_start to prof.log_stop: the samples freed in between."""
    records_of(heaptap, 0, "log.json")
    with open(lab.path("log.json"), encoding="utf-8") as file:
        log = json.load(file)
    os.unlink(lab.path("log.json"))
    assert log["info"]["lost_allocations"] == 0
    assert [entry["usize"] for entry in log["allocations"]] == [BLOCK_CLASS] * 5
    assert log["threads"][log["allocations"][0]["free_thread"]]["thr_name"] == "recorder"
    for entry in log["allocations"]:
        assert entry["free_timestamp"] > entry["alloc_timestamp"]
        assert entry["alloc_trace"] != entry["free_trace"]


def test_overwritten_records_are_counted(lab):
    process = lab.heaptap("run", "-o", "collector", "--map-size", "records=4", "--", target("recent"), "-1",
                          "log.json", env={"MALLOC_CONF": CONF})
    process.ends()
    assert len(json.loads(process.stdout())["recent_alloc"]) == 4
    with open(lab.path("log.json"), encoding="utf-8") as file:
        assert json.load(file)["info"]["lost_allocations"] >= 6
    os.unlink(lab.path("log.json"))


@pytest.mark.without_bpf
def test_stats_interval(library):
    """stats_interval prints statistics after every so many bytes, as often as jemalloc. 20000 blocks of 1 KiB are 19.5
    intervals; the program's start has less than a fifth of one, and jemalloc counts in 64 parts of an interval."""
    process = library.puppet(f"stats_interval:{1 << 20},stats_interval_opts:mdablxeh")
    for count, prints in ((10000, 9), (10000, 19)):
        assert process.ask(f"churn {count} {BLOCK_CLASS}") == f"churned {count}"
        assert process.stderr().count("___ Begin jemalloc statistics ___") == prints
    process.ends()
    assert process.stderr().count("--- End jemalloc statistics ---") == prints
