# SPDX-License-Identifier: Apache-2.0
"""Children are followed: each recorded process image has its own books and final dump.

Tested with exact recording and known leaks: the parent's allocations never count for a child, or the other way round.
Error bound: none.
"""

import os
import signal

import pytest

from harness import target
from symbols import live

NOTHING = (0, 0)
PARENT = (1010, 1010 * 64)
CHILD = (500, 500 * 128)


def leaks(dump):
    """The live memory of parent_leak() and child_leak() in a dump."""
    return live(dump, "parent_leak"), live(dump, "child_leak")


def run_way(lab, way):
    """The session, and both leaks in each dump."""
    session = lab.heaptap("run", "--exact", "--", target("children"), way)
    session.ends(7)
    finals = lab.dumps(kind="f")
    assert len(finals) == len(lab.dumps()), "other dumps than final ones"
    return session, sorted(leaks(dump.read()) for dump in finals)


@pytest.mark.parametrize("way", ("fork", "vfork", "spawn", "threads"))
def test_parent_and_child(lab, way):
    """A child starts with empty books: inherited memory belongs to its parent."""
    session, found = run_way(lab, way)
    assert found == [(NOTHING, CHILD), (PARENT, NOTHING)]
    assert len(session.books()) == 2


def test_fork_and_exec(lab):
    """The forked child has its own image before the exec; a dump of it would be empty."""
    _, found = run_way(lab, "exec")
    assert (PARENT, NOTHING) in found
    assert (NOTHING, CHILD) in found
    assert set(found) <= {(PARENT, NOTHING), (NOTHING, CHILD), (NOTHING, NOTHING)}


def test_daemon(lab):
    """heaptap run ends with its command and the command's status; a daemon that still runs is dumped, too."""
    session = lab.heaptap("run", "--exact", "--", target("children"), "daemon")
    session.ends()
    found = sorted(leaks(dump.read()) for dump in lab.dumps(kind="f"))
    assert found == [(NOTHING, CHILD), ((1000, 64000), NOTHING)]


def in_the_background(lab, *names):
    """A shell command that leaves a puppet behind for each name and prints the PIDs once all of them run."""
    for name in names:
        os.mkfifo(lab.path(f"{name}.in"))
        os.mkfifo(lab.path(f"{name}.out"))
    return "; ".join(f"{target('puppet')} <>{lab.path(name)}.in >{lab.path(name)}.out & "
                     f"read ready pid <{lab.path(name)}.out; echo $pid" for name in names)


def test_programs_in_the_background_are_named(lab):
    """Who goes on without being recorded, and how to record it again."""
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", in_the_background(lab, "one"))
    session.ends()
    pid = int(session.stdout())
    assert session.lines()[-1] == (f"heaptap: process {pid} (puppet) goes on and is not recorded any more; "
                                   f"heaptap attach {pid} records it again")
    attached = lab.attach(pid, "-d", "0.1")
    attached.ends()
    os.kill(pid, signal.SIGKILL)


def test_several_programs_in_the_background_are_named(lab):
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", in_the_background(lab, "one", "two"))
    session.ends()
    pids = [int(word) for word in session.stdout().split()]
    assert session.lines()[-1] == (
        "heaptap: 2 processes go on and are not recorded any more: " + ", ".join(f"{pid} (puppet)" for pid in pids) +
        "; heaptap attach PID records one of them again")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_shell_s_pipeline(lab):
    """Four images, four final dumps, each of another program; and the output passes through."""
    session = lab.heaptap("run", "--exact", "--", "/bin/sh", "-c",
                          f"{target('wiki_leak')}; {target('wiki_leak')} | cat; echo done")
    session.ends()
    assert session.stdout() == "done\n"
    assert sorted(entry["name"] for entry in session.books()) == ["cat", "sh", "wiki_leak", "wiki_leak"]
    assert [dump.kind for dump in lab.dumps()] == ["f"] * 4
    totals = {dump.pid: dump.read().total for dump in lab.dumps()}
    for entry in session.books():
        assert totals[entry["pid"]] == (entry["live_entries"], entry["live_bytes"])
        assert entry["name"] != "wiki_leak" or totals[entry["pid"]] == (120, 6926352)


def test_many_short_processes(lab):
    """A hundred short-lived processes, eight at a time: a hundred exact dumps."""
    session = lab.heaptap("run", "--exact", "--", "/bin/sh", "-c",
                          f"seq 100 | xargs -P 8 -n 1 {target('wiki_leak')}")
    session.ends()
    exact = [dump for dump in lab.dumps(kind="f") if dump.read().total == (120, 6926352)]
    assert len(exact) == 100


def test_exec_in_the_same_process(lab):
    """An exec ends an image without a dump, because its memory is gone; the next image starts with empty books."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 64")
    session.tell(f"exec {target('wiki_leak')}")
    session.ends()
    dump = lab.only_dump(pid=session.target_pid, kind="f")
    assert (dump.total.objects, dump.total.bytes) == (120, 6926352)
