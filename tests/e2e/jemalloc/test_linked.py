# SPDX-License-Identifier: Apache-2.0
"""Programs written for jemalloc: linked with Debian's libjemalloc.so.2 and run with heaptap preloaded, so that all calls
go to heaptap, including mallctl and mallocx; and the same source compiled with heaptap's headers and library.

Dumps, summaries and statistics come only from heaptap: the other jemalloc, which has no data, would overwrite them.
Error bounds: none, all numbers are exact.
"""

import json
import os
import re

import pytest

from harness import target
from symbols import live

# (function, objects, bytes) of tests/targets/jemalloc_example.c, in size classes.
LEAKS = (("leak_small", 30, 30 * 1024), ("leak_large", 20, 20 * 5120))
PROGRAMS = pytest.mark.parametrize("program", ("jemalloc_example", "heaptap_example"))


def assert_leaks(dump):
    for function, objects, size in LEAKS:
        assert live(dump, function) == (objects, size), function
    assert live(dump, "borrow") == (0, 0)


def run_example(lab, program, *arguments, conf="prof:true"):
    session = lab.heaptap("run", "--exact", "-o", "collector", "--", target(program), *arguments, env={"MALLOC_CONF": conf})
    session.ends()
    assert "___ Begin jemalloc" not in session.stderr()
    return session


def run_alone(lab, program, *arguments):
    """The output of the program with the library and no collector, for what the library does alone."""
    process = lab.preloaded(target(program), *arguments, env={"MALLOC_CONF": "prof:true"})
    process.ends()
    assert process.stderr() == ""
    return process.stdout()


def dumps_of_the_process(lab):
    return [name for name in lab.dumps() if name.prefix != "collector"]


def summaries(text):
    return re.findall(r"(?m)^<.*>: (Leak approximation summary: .*)$", text)


def test_the_leak_example(lab):
    """jemalloc's wiki: one dump of the process, with the same numbers as under jemalloc. (One object belongs to
    libstdc++, which libjemalloc is linked with.)"""
    conf = {"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0,prof_final:true"}
    alone = lab.program(target("wiki_leak_jemalloc"), env=conf)
    alone.ends()
    (expected,) = summaries(alone.stderr())
    assert re.search(r"~121 objects, >= 3 contexts", expected), expected
    for name in lab.dumps():
        os.unlink(name.path)

    session = lab.heaptap("run", "-o", "collector", "--", target("wiki_leak_jemalloc"), env=conf)
    session.ends()
    # The dump of the process, and the collector's own.
    assert set(summaries(session.stderr())) == {expected}
    (own,) = dumps_of_the_process(lab)
    assert (own.prefix, own.sequence, own.kind) == ("jeprof", 0, "f")
    total = own.read().total
    assert f"~{total.bytes} bytes, ~{total.objects} objects" in expected
    text = lab.reader("jeprof", "--text", target("wiki_leak_jemalloc"), own.path)
    for function in ("do_something", "do_something_else"):
        assert re.search(rf"(?m)^\s+3\.3\s.*\s{function}$", text), text


@PROGRAMS
@pytest.mark.parametrize("command", ("dump", "name"))
def test_extended_functions_and_dumps(lab, program, command):
    path = lab.path(f"{program}.1.0.m0.heap")
    session = run_example(lab, program, command, path)
    assert session.stdout() == "mallctl 0\n"
    (name,) = [name for name in lab.dumps() if name.path == path]
    assert_leaks(name.read())


@PROGRAMS
def test_final_dump(lab, program):
    run_example(lab, program, conf="prof:true,prof_final:true,prof_prefix:inner")
    (name,) = dumps_of_the_process(lab)
    assert (name.prefix, name.sequence, name.kind) == ("inner", 0, "f")
    assert_leaks(name.read())


def test_options_in_the_program(lab):
    """const char *malloc_conf of the program: heaptap follows it, the other jemalloc does not. Both would print
    statistics and write a final dump and a summary."""
    session = lab.heaptap("run", "--exact", "-o", "collector", "--", target("jemalloc_example_conf"))
    session.ends()
    (name,) = dumps_of_the_process(lab)
    assert_leaks(name.read())
    assert session.stderr().count("___ Begin jemalloc statistics ___") == 1


@pytest.mark.without_bpf
@PROGRAMS
def test_size_classes(lab, program):
    """By name and by number. heaptap takes larger blocks from slabs than jemalloc, so it has more bins; common bins are
    equal."""
    alone = lab.program(target("jemalloc_example"), "sizes")
    alone.ends()
    bins = alone.stdout().split()
    assert (bins[0], bins[-1]) == ("8", "14336")
    ours = run_alone(lab, program, "sizes").split()
    assert (ours[:len(bins)], ours[-1]) == (bins, "32768")


@pytest.mark.without_bpf
@PROGRAMS
def test_statistics(lab, program):
    text = run_alone(lab, program, "stats")
    assert text.startswith("___ Begin jemalloc statistics ___\n"), text[:100]
    figures = json.loads(run_alone(lab, program, "stats", "J"))["jemalloc"]
    assert figures["stats"]["allocated"] >= sum(size for _, _, size in LEAKS)
    assert figures["opt"]["prof"]
