# SPDX-License-Identifier: Apache-2.0
"""The times and names of dumps: at the end, when killed, on SIGUSR1, high-water, interval.

The puppet allocates step by step and the test waits for each dump, so nothing depends on time. Recording is exact; error
bounds: none.
"""

import os
import re
import signal

import pytest

from harness import target, wait_until
from symbols import kept, live

MI = 1 << 20


def wait_for_dumps(lab, count, **which):
    return wait_until(lambda: len(lab.dumps(**which)) >= count and lab.dumps(**which), f"{count} dumps {which}")


def test_killed_in_the_middle(lab):
    """kill -9 of the target: the final dump is complete, and the books balance."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 5000 100")
    session.ask("churn 5000 100")
    os.kill(session.target_pid, signal.SIGKILL)
    session.ends(128 + signal.SIGKILL)
    assert live(lab.only_dump(kind="f"), "keep_blocks") == (5000, 5000 * 112)


def test_killed_while_it_allocates(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 1000 100")
    session.tell("churn 1000000000 100")
    session.signal(signal.SIGUSR1)
    wait_for_dumps(lab, 1, kind="m")
    os.kill(session.target_pid, signal.SIGKILL)
    session.ends(128 + signal.SIGKILL)
    assert live(lab.only_dump(kind="f"), "keep_blocks") == (1000, 112000)


def test_sigusr1_twice(lab):
    """Two manual dumps, sequence 0 and 1, each with the live memory of its moment; the final one has sequence 2."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 100")
    session.signal(signal.SIGUSR1)
    session.wait_said(r"^heaptap: wrote .*\.m0\.heap: \d+ bytes in \d+ objects live")
    session.ask("keep 50 100")
    session.signal(signal.SIGUSR1)
    session.wait_said(r"^heaptap: wrote .*\.m1\.heap: \d+ bytes in \d+ objects live")
    session.ask("drop")
    session.ends()
    names = [os.path.basename(dump.path) for dump in lab.dumps()]
    pid = session.target_pid
    assert names == [f"jeprof.{pid}.0.m0.heap", f"jeprof.{pid}.1.m1.heap", f"jeprof.{pid}.2.f.heap"]
    assert [kept(dump.read()) for dump in lab.dumps()] == [100, 150, 0]


def test_prefix(lab):
    """-o names the dumps; its folders must exist; the current folder stays empty."""
    os.mkdir(lab.path("out"))
    session = lab.heaptap("run", "-o", "out/my.profile", "--exact", "--", target("wiki_leak"))
    session.ends()
    (name,) = os.listdir(lab.path("out"))
    assert re.search(r"^my\.profile\.\d+\.0\.f\.heap$", name), name
    assert [name for name in os.listdir(lab.folder) if name.endswith(".heap")] == []


def test_high_water(lab):
    """--high-water=45: a dump when live memory exceeds its last maximum by 45 %, from 1 MiB on, and only then."""
    session = lab.puppet_under_heaptap("--exact", "--high-water=45")
    expected, mark = [], 1
    for blocks in range(1, 33):
        session.ask(f"keep 1 {MI}")
        if blocks >= mark:
            expected.append(blocks)
            mark = blocks * 1.45
            wait_for_dumps(lab, len(expected), kind="u")
    session.ask("drop")
    session.ask(f"keep 32 {MI}")  # no new high
    session.ends()
    found = lab.dumps(kind="u")
    assert [dump.number for dump in found] == list(range(len(expected)))
    assert [dump.read().total.bytes // MI for dump in found] == expected


def test_the_report_is_of_the_highest_mark(lab):
    """A program that frees everything before its end held memory all the same."""
    session = lab.puppet_under_heaptap("--exact", "--high-water", "--report", "always")
    session.ask(f"keep 1 {MI}")
    wait_for_dumps(lab, 1, kind="u")
    session.ask(f"keep 1 {7 * MI}")
    highest = wait_for_dumps(lab, 2, kind="u")[1]
    session.ask("drop")
    session.ends()
    shown = session.stderr()
    assert re.search(rf"^heaptap: most was live at the high-water mark of {re.escape(os.path.basename(highest.path))} "
                     r"\(puppet, 8\.\dM\)$", shown, re.MULTILINE), shown
    assert f"\n\n{os.path.basename(highest.path)}\n  live       8." in shown, shown


def test_a_peak_that_no_dump_has(lab):
    """A dump is made after its mark: what a program has freed by then is not called the most."""
    session = lab.puppet_under_heaptap("--exact", "--high-water", "--report", "always")
    session.ask(f"keep 1 {MI}")
    (only,) = wait_for_dumps(lab, 1, kind="u")
    session.signal(signal.SIGSTOP)
    session.ask(f"keep 1 {7 * MI}")
    session.ask("drop")
    session.signal(signal.SIGCONT)
    session.ends()
    assert only.read().total.bytes == MI
    name = re.escape(os.path.basename(only.path))
    assert re.search(rf"^heaptap: of all dumps, the one at the high-water mark of {name} \(puppet, 1\.0M\) "
                     r"has most live bytes; the peak was 8\.0M$", session.stderr(), re.MULTILINE), session.stderr()


def test_interval(lab):
    """--interval: one dump for every 4 MiB allocated, freed or not."""
    session = lab.puppet_under_heaptap("--exact", "--interval", 4 * MI)
    for step in range(3):
        session.ask(f"churn 9 {MI // 2}")
        wait_for_dumps(lab, step + 1, kind="i")
    session.ends()
    found = lab.dumps(kind="i")
    assert len(found) == 3, [dump.path for dump in found]
    assert [dump.number for dump in found] == [0, 1, 2]
    assert [dump.sequence for dump in found] == [0, 1, 2]


@pytest.mark.parametrize("rate, flags, conf", (
    (1 << 19, (), None), (1 << 12, (), "lg_prof_sample:12"), (1 << 10, ("--lg-sample", "10"), None),
    (1 << 10, ("--lg-sample", "10"), "prof:true,lg_prof_sample:12"), (1, ("--exact",), "lg_prof_sample:12")))
def test_rate_precedence(lab, rate, flags, conf):
    """A command-line option overrides MALLOC_CONF, which overrides the default; heap_v2/RATE shows the rate."""
    session = lab.heaptap("run", *flags, "--", target("wiki_leak"), env={"MALLOC_CONF": conf})
    session.ends()
    assert lab.only_dump().rate == rate
