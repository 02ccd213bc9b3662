# SPDX-License-Identifier: Apache-2.0
"""After a change of the sampling interval all views have the same figures, and the errors of the real samples.

The seed fixes which allocations are samples, so the true figures lie within five standard errors, or never.
"""

import json
import math
import re

import pytest

from allocators import jeprof
from harness import target, wait_until
from history import wait_known

DAEMON = ["--history-interval", "100ms"]
SHORT = 1 << 14
# Blocks and their sizes, which are size classes, at the first interval and at the second one.
FIRST = (100_000, 112)
SECOND = (20_000, 1024)
# What else the process holds, at most.
SMALL = 100_000
BYTES = FIRST[0] * FIRST[1] + SECOND[0] * SECOND[1]


def recorded_puppet(lab, daemon, lg_sample):
    """Its unwind tables are loaded: until then, only some stacks at a time can wait for them."""
    process = lab.preloaded_puppet(env={"MALLOC_CONF": f"prof:true,lg_prof_sample:{lg_sample}"})
    daemon.wait_recorded(process.pid)
    process.ask("churn 10 10000000")
    daemon.settle()
    return process


def function(path):
    return next(frame["function"] for frame in path["frames"] if frame["function"] in ("keep_blocks", "start_blocks"))


def figures(document):
    """Live bytes, objects and samples of each function, and the error of the bytes."""
    return {function(path): path["live"] for path in document["call_paths"] if path["live"]["samples"] > 0
            and any(frame["function"] in ("keep_blocks", "start_blocks") for frame in path["frames"])}


def of_jeprof(lab, path, *options):
    text = jeprof(lab, "--text", *options, target("puppet"), path).decode()
    return int(re.search(r"^Total: (\d+) ", text, re.MULTILINE).group(1))


def several_intervals(lab, daemon, process):
    """Whether all views say that no single interval is that of all samples."""
    subject = json.loads(daemon.get(f"/pid/{process.pid}/profile.json").body)["subject"]
    said = [subject.get("several_periods", False)]
    said.append('"several_periods":true' in daemon.client("report", "--html", process.pid))
    for options in ((), ("--markdown",)):
        said.append("several intervals, at last a sample every" in daemon.client("report", *options, process.pid))
    for form in ("heap_v2", "gperftools", "pprof"):
        path = lab.path(f"interval.{form}")
        daemon.client("dump", process.pid, "--format", form, "-o", path)
        said.append(json.loads(daemon.client("report", path, "--json"))["several_periods"])
    assert len(set(said)) == 1, said
    return said[0]


@pytest.mark.parametrize("before, after", ((14, 19), (19, 14)), ids=("longer", "shorter"))
def test_all_views_agree(lab, daemon, before, after):
    process = recorded_puppet(lab, daemon, before)
    process.ask(f"keep {FIRST[0]} {FIRST[1]}")
    assert not several_intervals(lab, daemon, process)
    daemon.client("rate", process.pid, str(after))
    process.ask(f"start {SECOND[0]} {SECOND[1]}")
    stats = json.loads(daemon.client("stats", process.pid, "--json"))["process"]
    report = json.loads(daemon.client("report", process.pid, "--json"))
    samples = figures(report)
    expected = {"keep_blocks": (FIRST, before), "start_blocks": (SECOND, after)}
    assert samples.keys() == expected.keys()
    for name, (blocks, lg_sample) in expected.items():
        live, size = samples[name], blocks[1]
        weight = size / -math.expm1(-size / 2 ** lg_sample)
        assert live["bytes"] == pytest.approx(live["samples"] * weight, rel=1e-3)
        assert live["objects"] == pytest.approx(live["samples"] * weight / size, rel=1e-3)
        # A unit of the books is 2^16 square bytes; a dump has the error to a tenth.
        assert live["error"] == pytest.approx(math.sqrt(live["samples"] * weight * (weight - size)), rel=0.11)
        assert abs(live["bytes"] - size * blocks[0]) < 5 * live["error"]
    assert several_intervals(lab, daemon, process)
    live = report["live"]
    assert abs(live["bytes"] - BYTES) < 5 * live["error"] + SMALL
    assert stats["live_bytes"] == pytest.approx(live["bytes"], rel=0.01)
    assert stats["live_objects"] == pytest.approx(live["objects"], rel=0.01)

    for form in ("heap_v2", "gperftools", "pprof"):
        path = lab.path(f"dump.{form}")
        daemon.client("dump", process.pid, "--format", form, "-o", path)
        again = json.loads(daemon.client("report", path, "--json"))
        for name, live in figures(again).items():
            assert live["bytes"] == pytest.approx(samples[name]["bytes"], rel=0.02), (form, name)
            assert live["objects"] == pytest.approx(samples[name]["objects"], rel=0.02), (form, name)
            if form != "pprof":  # it has no place for them
                assert live["samples"] == samples[name]["samples"], (form, name)
                assert live["error"] == pytest.approx(samples[name]["error"], rel=0.11), (form, name)
    assert of_jeprof(lab, lab.path("dump.heap_v2"), "--show_bytes") == pytest.approx(stats["live_bytes"], rel=0.02)
    assert of_jeprof(lab, lab.path("dump.heap_v2"), "--inuse_objects") == pytest.approx(stats["live_objects"], rel=0.02)

    def moment():
        return figures(json.loads(daemon.client("report", f"{process.pid}@now", "--json")))
    wait_known(daemon, process.pid)
    wait_until(lambda: {name: live["samples"] for name, live in moment().items()} ==
               {name: live["samples"] for name, live in samples.items()}, "the history has all samples and their names")
    # The history keeps what is live, and the last interval: of heavier samples it does not know their sizes.
    said = json.loads(daemon.client("report", f"{process.pid}@now", "--json"))["several_periods"]
    assert said == (before < after)
    for name, live in moment().items():
        assert live["bytes"] == pytest.approx(samples[name]["bytes"], rel=1e-3)
        assert live["error"] == pytest.approx(samples[name]["error"], rel=0.11)


def test_a_difference_has_the_error_of_its_new_samples(lab, daemon):
    """A leak that is looked at more closely: the heavy samples that stay add nothing."""
    process = recorded_puppet(lab, daemon, 19)
    process.ask("keep 100000 1024")
    daemon.client("rate", process.pid, "14")
    daemon.client("dump", process.pid, "-o", lab.path("first"))
    process.ask("keep 1000 1024")
    daemon.client("dump", process.pid, "-o", lab.path("second"))
    document = json.loads(daemon.client("report", "--json", "--base", lab.path("first"), lab.path("second")))
    (live,) = figures(document).values()
    weight = 1024 / -math.expm1(-1024 / SHORT)
    assert live["bytes"] == pytest.approx(live["samples"] * weight, rel=0.05)
    assert live["error"] == pytest.approx(math.sqrt(live["samples"] * weight * (weight - 1024)), rel=0.2)
    assert abs(live["bytes"] - 1000 * 1024) < 5 * live["error"]
