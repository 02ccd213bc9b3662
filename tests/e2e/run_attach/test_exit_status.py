# SPDX-License-Identifier: Apache-2.0
"""heaptap run is transparent: it passes on the status, streams and signals of the command."""

import signal

import pytest

from harness import PATIENCE_SECONDS
from lab import assert_one_clear_line


@pytest.mark.parametrize("status", (0, 1, 42, 255))
def test_status_is_passed_through(lab, status):
    lab.heaptap("run", "--", "/bin/sh", "-c", f"exit {status}").ends(status)


@pytest.mark.parametrize("command, number", (("abort", signal.SIGABRT), ("segv", signal.SIGSEGV),
                                             ("raise 9", signal.SIGKILL), ("raise 15", signal.SIGTERM)))
def test_death_by_signal_is_128_and_the_signal(lab, command, number):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 64")
    session.tell(command)
    session.ends(128 + number)
    assert len(lab.dumps(pid=session.target_pid, kind="f")) == 1


def test_exit_without_atexit(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 64")
    session.tell("_exit 3")
    session.ends(3)
    assert lab.only_dump().total.objects >= 100


def test_streams_pass_through(lab):
    with open(lab.path("input"), "w+", encoding="ascii") as file:
        file.write("to-stdout\n")
        file.seek(0)
        session = lab.heaptap("run", "--", "/bin/sh", "-c", "cat; echo to-stderr >&2", stdin=file)
    session.ends()
    assert session.stdout() == "to-stdout\n"
    assert "to-stderr" in session.lines()


@pytest.mark.parametrize("number", (signal.SIGINT, signal.SIGTERM))
def test_signals_are_forwarded(lab, number):
    """heaptap passes SIGINT and SIGTERM to the command, and writes the last dump when the command ends."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 10 64")
    session.signal(number)
    assert session.popen.wait(PATIENCE_SECONDS) == 128 + number, session.stderr()
    assert len(lab.dumps(pid=session.target_pid, kind="f")) == 1


def test_a_command_that_handles_the_signal(lab):
    script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    session = lab.heaptap("run", "--", "/bin/sh", "-c", script, talks=True)
    assert session.answer() == "ready"
    session.signal(signal.SIGTERM)
    assert session.popen.wait(PATIENCE_SECONDS) == 9, session.stderr()


def test_no_such_command_is_127(lab):
    session = lab.heaptap("run", "--", "/no/such/command")
    assert_one_clear_line(session, 127, "/no/such/command")


def test_a_command_that_cannot_be_executed_is_126(lab):
    path = lab.path("not-executable")
    with open(path, "w", encoding="ascii") as file:
        file.write("text\n")
    assert_one_clear_line(lab.heaptap("run", "--", path), 126, "not-executable")
