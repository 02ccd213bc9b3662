# SPDX-License-Identifier: Apache-2.0
"""Without a collector: an error without a wait, one line that says how to start a collector, and the program goes on."""

import errno
import os

import pytest

from allocators import said
from dumping import BLOCK, give_patience, waits
from harness import target

pytestmark = pytest.mark.without_bpf


def lonely(lab, conf):
    """A puppet that would wait for ever, if it waited."""
    process = lab.preloaded_puppet(env={"MALLOC_CONF": conf})
    give_patience(process.pid)
    return process


def assert_never_waited(process):
    assert waits(process.pid).dump_answers == 0


def assert_lines(process, number, at_exit=0):
    """Each line says how to start a collector; the last ones come too late for an attach."""
    lines = said(process)
    assert len(lines) == number, lines
    for place, line in enumerate(lines):
        advice = "heaptap run -- " if place >= number - at_exit else f"heaptap attach -p {process.pid}"
        assert advice in line


def test_by_hand(lab):
    process = lonely(lab, "prof:true,lg_prof_sample:0,prof_prefix:dump")
    assert process.ask("call prof.dump") == str(errno.EFAULT)
    assert_never_waited(process)
    assert_lines(process, 1)
    assert process.ask(f"keep 3 {BLOCK}") == "kept 3"
    process.ends()
    assert lab.dumps() == []


@pytest.mark.parametrize("conf, lines, at_exit", (
    ("lg_prof_interval:20", 0, 0), ("prof_gdump:true", 1, 0), ("prof_final:true,prof_leak:true", 1, 1),
    ("lg_prof_interval:20,prof_gdump:true,prof_final:true,prof_leak:true", 2, 1),
    ("prof_leak_error:true,prof_final:true", 1, 1)))
def test_triggers(lab, conf, lines, at_exit):
    """Six or more new maxima: one line for all of them, and one at the end; no interval, because nothing is sampled. No
    file, no summary, no claim of a leak, and the program's own status."""
    process = lonely(lab, "prof:true,lg_prof_sample:0,prof_prefix:dump," + conf)
    assert process.ask(f"keep 100 {BLOCK}") == "kept 100"
    assert_never_waited(process)
    process.ends()
    assert_lines(process, lines, at_exit)
    assert lab.dumps() == []


def test_the_wiki_s_leak_check(lab):
    """Only prof_leak:true, as users write it."""
    process = lab.preloaded(target("wiki_leak"), env={"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0"})
    process.ends()
    assert_lines(process, 1, at_exit=1)
    assert lab.dumps() == []


def test_an_older_dump_is_not_harmed(lab):
    with open(lab.path("old.prof"), "w", encoding="ascii") as file:
        file.write("precious")
    process = lonely(lab, "prof:true")
    assert process.ask("write string prof.dump old.prof") == str(errno.EFAULT)
    with open(lab.path("old.prof"), encoding="ascii") as file:
        assert file.read() == "precious"


def test_64_threads(lab):
    process = lonely(lab, "prof:true")
    _, _, *errors = process.ask("storm 64 storm.prof").split()
    assert errors == [str(errno.EFAULT)] * 64
    assert_never_waited(process)
    assert [name for name in os.listdir(lab.folder) if name.startswith("storm")] == []
