# SPDX-License-Identifier: Apache-2.0
"""A program that moves its code to anonymous memory at its own address, to have it in huge pages, keeps its functions' names.

The test program has frame pointers, so its stacks stay whole although the kernel finds no unwind table there.
"""

import signal

import pytest

import symbols
from harness import target
from lab import READY_BLOCKS


def assert_named(dump, function, count):
    stacks = symbols.stacks_through(dump, function)
    assert sum(stack.total.objects for stack in stacks) == count
    for stack in stacks:
        assert "main" in symbols.names(dump, stack)


@pytest.mark.parametrize("arguments", [(), ("--guest",)], ids=["own", "guest"])
def test_a_running_recording(lab, arguments):
    session = lab.puppet_under_heaptap("--exact", *arguments)
    session.ask("keep 100 1000")
    assert session.ask("move_code") == "moved_code 0"
    # The bytes of a process that has ended could not be compared.
    session.wait_said("^heaptap: .* has moved code of ")
    session.ask("start 50 1000")
    session.ends()
    dump = lab.only_dump()
    assert_named(dump, "keep_blocks", 100)
    assert_named(dump, "start_blocks", 50)
    assert [line for line in session.lines() if "anonymous" in line] == [
        f"heaptap: process {session.target_pid} has moved code of {target('puppet')} to anonymous memory; stacks through it "
        "follow frame pointers"]


def test_attached_afterwards(lab):
    puppet = lab.preloaded_puppet()
    assert puppet.ask("move_code") == "moved_code 0"
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 10000 100")
    session.signal(signal.SIGINT)
    session.ends()
    assert 10000 - READY_BLOCKS <= symbols.live(lab.only_dump(puppet.target_pid), "keep_blocks")[0] <= 10000
    puppet.ends()


def test_a_daemon(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppet = lab.preloaded_puppet()
    puppet.ask("keep 10 1000")
    daemon.wait_recorded(puppet.pid)
    assert puppet.ask("move_code") == "moved_code 0"
    puppet.ask("start 1000 4000")
    daemon.wait_recorded(puppet.pid)
    assert "start_blocks" in daemon.client("report", puppet.pid)
    puppet.ends()
