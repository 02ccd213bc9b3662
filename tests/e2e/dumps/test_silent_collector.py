# SPDX-License-Identifier: Apache-2.0
"""A collector that does not answer, or dies: each dump fails within its time limit, and no file is incomplete."""

import errno
import os
import re
import signal
import time

import pytest

from allocators import assert_answers, said
from dumping import (BLOCK, DUMP_SECONDS, QUEUE_SECONDS, SLACK_SECONDS, assert_goes_on, assert_no_torn_file, begin)
from harness import wait_until

FAILED = (errno.EFAULT, errno.EAGAIN)


def begin_dump(process, name="never.prof"):
    """Asks for a dump while the collector is stopped; returns when the process waits."""
    process.signal(signal.SIGSTOP)
    process.tell(f"write string prof.dump {name}")
    fds = f"/proc/{process.target_pid}/fd"

    def waits():
        return any("eventfd" in os.readlink(os.path.join(fds, fd)) for fd in os.listdir(fds))
    wait_until(waits, "the process waits for its dump")
    return time.monotonic()


def assert_given_up(begun, answer, error=errno.EAGAIN, seconds=DUMP_SECONDS):
    assert answer == str(error)
    assert time.monotonic() - begun < seconds + SLACK_SECONDS


def test_killed_in_the_handshake(lab, heaptap):
    process = begin(heaptap, conf=",prof_final:true,prof_leak:true")
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
    begun = begin_dump(process)
    process.signal(signal.SIGKILL)
    assert_given_up(begun, process.answer(), errno.EFAULT)
    assert len(said(process)) == 1, said(process)
    assert_no_torn_file(lab)
    assert process.ask(f"churn 10 {BLOCK}") == "churned 10"
    # Without a collector, dumps fail at once, with the line that says how to start one; at the end too.
    begun = time.monotonic()
    assert process.ask("write string prof.dump nobody.prof") == str(errno.EFAULT)
    assert time.monotonic() - begun < SLACK_SECONDS
    assert f"heaptap attach -p {process.target_pid}" in said(process)[-1]
    process.popen.stdin.close()
    # The kernel takes a while to end heaptap; until then the program is its child.
    process.popen.wait()
    assert os.waitstatus_to_exitcode(os.waitpid(process.target_pid, 0)[1]) == 0
    assert len(said(process)) == 3, said(process)
    assert_no_torn_file(lab)


def assert_stopped_for_too_long(lab, heaptap, seconds):
    process = begin(heaptap)
    begun = begin_dump(process)
    assert_given_up(begun, process.answer(), seconds=seconds)
    # The process did wait; the time before begin_dump() noticed is not counted.
    assert time.monotonic() - begun > 0.5 * seconds
    process.signal(signal.SIGCONT)
    assert_goes_on(heaptap, process, 1)
    assert_no_torn_file(lab)
    assert not os.path.exists(heaptap.path("never.prof"))


def test_stopped_for_too_long(lab, impatient):
    """EAGAIN; a late answer changes nothing, and the next dump is complete."""
    assert_stopped_for_too_long(lab, impatient, DUMP_SECONDS)


@pytest.mark.slow
def test_stopped_for_ten_seconds(lab, heaptap):
    """With the installed library."""
    assert_stopped_for_too_long(lab, heaptap, 10)


def test_a_handler_s_dump_interrupts_a_dump(lab, heaptap):
    """The same thread asks again from a signal handler while it waits: the inner request fails at once, the outer one
    succeeds."""
    process = begin(heaptap)
    assert_answers(process, ("arm write string prof.dump inner.prof", "armed"))
    begin_dump(process, "outer.prof")
    os.kill(process.target_pid, signal.SIGUSR2)
    assert process.answer() == f"handler {errno.EAGAIN}"
    process.signal(signal.SIGCONT)
    assert process.answer() == "0"
    assert_goes_on(heaptap, process, 0)
    assert not os.path.exists(heaptap.path("inner.prof"))
    assert_no_torn_file(lab)


def test_a_child_of_a_dump(lab, impatient):
    """A fork in the middle of a dump: the child has no dump in progress, and its own fails in time."""
    process = begin(impatient)
    assert_answers(process, ("arm fork write string prof.dump child.prof", "armed"))
    begun = begin_dump(process, "parent.prof")
    os.kill(process.target_pid, signal.SIGUSR2)
    inner = process.answer()
    assert re.search(r"^handler \d+ \d+$", inner), inner
    assert_given_up(begun, inner.split()[2], seconds=2 * DUMP_SECONDS)
    assert_given_up(begun, process.answer(), seconds=2 * DUMP_SECONDS)
    process.signal(signal.SIGCONT)
    assert_goes_on(impatient, process, 2)
    assert_no_torn_file(lab)


def test_64_threads_without_an_answer(lab, impatient):
    process = begin(impatient)
    process.signal(signal.SIGSTOP)
    begun = time.monotonic()
    word, slowest, *errors = process.ask("storm 64 storm.prof").split()
    assert (word, errors) == ("storm", [str(errno.EAGAIN)] * 64)
    assert int(slowest) / 1000 < QUEUE_SECONDS + SLACK_SECONDS
    assert time.monotonic() - begun < QUEUE_SECONDS + SLACK_SECONDS
    process.signal(signal.SIGCONT)
    # Threads whose turn came print a line: at most three in the time that the others wait.
    lines = len(said(process))
    assert lines in (1, 2, 3)
    assert_goes_on(impatient, process, lines)
    assert_no_torn_file(lab)


def test_killed_among_64_threads(lab, impatient):
    """The collector dies while it answers: answered dumps are complete, the others fail, no file is incomplete."""
    process = begin(impatient)
    process.tell("storm 64 storm.prof")
    # Dumps come one after the other: when the second file exists, the first is answered.
    wait_until(lambda: len([name for name in os.listdir(lab.folder) if name.startswith("storm.prof")]) > 1,
               "the second file is there")
    process.signal(signal.SIGKILL)
    _, slowest, *errors = process.answer().split()
    assert {int(number) for number in errors} <= {0, *FAILED}
    assert 0 < errors.count("0") < 64
    assert int(slowest) / 1000 < QUEUE_SECONDS + SLACK_SECONDS
    for number, error in enumerate(errors):
        assert os.path.exists(impatient.path(f"storm.prof.{number}")) == (error == "0"), errors
    assert_no_torn_file(lab)
