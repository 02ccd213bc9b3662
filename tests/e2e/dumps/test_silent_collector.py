# SPDX-License-Identifier: Apache-2.0
"""A collector that does not answer, or dies: each dump fails within its time limit, and no file is incomplete."""

import errno
import os
import re
import signal
import time

import pytest

from allocators import assert_answers, said
from dumping import BLOCK, assert_goes_on, assert_no_torn_file, begin, begin_dump, give_patience, stop, waits
from harness import wait_until

NOBODY, LATE = str(errno.EFAULT), str(errno.EAGAIN)
# The process counts whole milliseconds.
CLOCK_STEP_SECONDS = 0.001


def test_killed_in_the_handshake(lab, heaptap):
    process = begin(heaptap, conf=",prof_final:true,prof_leak:true")
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
    begin_dump(process)
    process.signal(signal.SIGKILL)
    assert process.answer() == NOBODY
    assert len(said(process)) == 1, said(process)
    assert_no_torn_file(lab)
    assert process.ask(f"churn 10 {BLOCK}") == "churned 10"
    # Without a collector, dumps fail without a wait, with the line that says how to start one; at the end too.
    before = waits(process.target_pid)
    assert process.ask("write string prof.dump nobody.prof") == NOBODY
    assert waits(process.target_pid).dump_answers == before.dump_answers
    assert f"heaptap attach -p {process.target_pid}" in said(process)[-1]
    process.popen.stdin.close()
    # The kernel takes a while to end heaptap; until then the program is its child.
    process.popen.wait()
    assert os.waitstatus_to_exitcode(os.waitpid(process.target_pid, 0)[1]) == 0
    assert len(said(process)) == 3, said(process)
    assert_no_torn_file(lab)


def assert_stopped_for_too_long(lab, heaptap, process, seconds):
    begun = time.monotonic()
    begin_dump(process)
    assert process.answer() == LATE
    assert time.monotonic() - begun > seconds - CLOCK_STEP_SECONDS
    process.signal(signal.SIGCONT)
    assert_goes_on(heaptap, process, 1)
    assert_no_torn_file(lab)
    assert not os.path.exists(heaptap.path("never.prof"))


def test_stopped_for_too_long(lab, heaptap):
    """EAGAIN; a late answer changes nothing, and the next dump is complete."""
    process = begin(heaptap)
    give_patience(process.target_pid, 500)
    assert_stopped_for_too_long(lab, heaptap, process, 0.5)


@pytest.mark.slow
def test_stopped_for_ten_seconds(lab, heaptap):
    """With the patience that a process has by itself."""
    process = heaptap.puppet("prof:true,lg_prof_sample:0")
    assert waits(process.target_pid).dump_patience == 10000
    assert_stopped_for_too_long(lab, heaptap, process, 10)


def test_a_handler_s_dump_interrupts_a_dump(lab, heaptap):
    """The same thread asks again from a signal handler while it waits: the inner request fails at once, the outer one
    succeeds."""
    process = begin(heaptap)
    assert_answers(process, ("arm write string prof.dump inner.prof", "armed"))
    begin_dump(process, "outer.prof")
    before = waits(process.target_pid)
    os.kill(process.target_pid, signal.SIGUSR2)
    assert process.answer() == f"handler {LATE}"
    assert waits(process.target_pid) == before
    process.signal(signal.SIGCONT)
    assert process.answer() == "0"
    assert_goes_on(heaptap, process, 0)
    assert not os.path.exists(heaptap.path("inner.prof"))
    assert_no_torn_file(lab)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def test_a_child_of_a_dump(lab, heaptap):
    """A fork in the middle of a dump: the child has no dump in progress, and its own is one more."""
    process = begin(heaptap)
    assert_answers(process, ("arm fork write string prof.dump child.prof", "armed"))
    begin_dump(process, "parent.prof")
    parent = process.target_pid
    before = waits(parent)
    os.kill(parent, signal.SIGUSR2)
    (child,) = wait_until(lambda: children(parent), "the handler has forked")
    # The child continues with its parent's numbers.
    wait_until(lambda: waits(child).dump_answers == before.dump_answers + 1, "the child waits for its dump")
    give_patience(child, 0)
    inner = process.answer()
    assert re.fullmatch(rf"handler {child} {LATE}", inner), inner
    assert waits(parent) == before
    give_patience(parent, 0)
    assert process.answer() == LATE
    process.signal(signal.SIGCONT)
    assert_goes_on(heaptap, process, 2)
    assert_no_torn_file(lab)


def begin_storm(process, name, count=64):
    """So many threads wait: the first for its answer, the others for their turns."""
    before = waits(process.target_pid)
    process.tell(f"storm {count} {name}")
    wait_until(lambda: waits(process.target_pid).dump_turns == before.dump_turns + count, "all threads want a dump")
    wait_until(lambda: waits(process.target_pid).dump_answers == before.dump_answers + 1, "the first has asked for it")


def test_64_threads_without_an_answer(lab, heaptap):
    """The first gives up, and the others that have waited meanwhile give up with it, without a line of their own."""
    process = begin(heaptap)
    stop(process)
    begin_storm(process, "storm.prof")
    before = waits(process.target_pid)
    give_patience(process.target_pid, 0)
    word, _, *errors = process.answer().split()
    assert (word, errors) == ("storm", [LATE] * 64)
    assert waits(process.target_pid).dump_answers == before.dump_answers
    process.signal(signal.SIGCONT)
    assert_goes_on(heaptap, process, 1)
    assert_no_torn_file(lab)


def assert_written(heaptap, name, errors):
    for number, error in enumerate(errors):
        assert os.path.exists(heaptap.path(f"{name}.{number}")) == (error == "0"), errors


def test_killed_before_64_threads(lab, heaptap):
    """The collector has answered 64 dumps, and dies while 64 others wait: these fail, those are complete."""
    process = begin(heaptap)
    _, _, *errors = process.ask("storm 64 early.prof").split()
    assert errors == ["0"] * 64
    stop(process)
    begin_storm(process, "late.prof")
    before = waits(process.target_pid)
    process.signal(signal.SIGKILL)
    _, _, *late_errors = process.answer().split()
    assert late_errors == [NOBODY] * 64
    # The others do not ask when the first has seen that nobody is there.
    assert waits(process.target_pid).dump_answers == before.dump_answers
    assert_written(heaptap, "early.prof", errors)
    assert_written(heaptap, "late.prof", late_errors)
    assert_no_torn_file(lab)


def test_killed_among_64_threads(lab, heaptap):
    """The collector dies at any moment while it answers: answered dumps are complete, the others fail, no file is
    incomplete."""
    process = begin(heaptap)
    process.tell("storm 64 storm.prof")
    # Dumps come one after the other: when the second has been asked for, the first is answered.
    wait_until(lambda: waits(process.target_pid).dump_answers > 1, "the second dump is asked for")
    process.signal(signal.SIGKILL)
    _, _, *errors = process.answer().split()
    assert set(errors) <= {"0", NOBODY}
    assert errors.count("0") >= 1
    assert_written(heaptap, "storm.prof", errors)
    assert_no_torn_file(lab)
