# SPDX-License-Identifier: Apache-2.0
"""A program that asks for dumps by mallctl, and what it waits for.

A process gives up on a dump after 10 seconds, and earlier if the collector goes away (contract.h). Here its patience is
endless, so that only what a test does ends a wait, however slow the machine is; a test that wants a wait to end takes the
patience away.
"""

import os
import re
import signal

import control
from allocators import KI, assert_answers, said
from harness import LIBRARY, wait_until
from heap_v2 import Dump
from symbols import live

BLOCK = 64 * KI
CONF = "prof:true,lg_prof_sample:0,prof_prefix:"
# The shortest of the limits that belong to it, a tenth, is longer than any limit of a test.
ENDLESS_MILLISECONDS = 24 * 3600 * 1000


def give_patience(pid, milliseconds=ENDLESS_MILLISECONDS):
    control.set_dump_patience(pid, LIBRARY, milliseconds)


def waits(pid):
    return control.waits(pid, LIBRARY)


def begin(heaptap, prefix="dump", conf=""):
    """Starts a program whose patience is endless."""
    process = heaptap.puppet(CONF + prefix + conf)
    give_patience(process.target_pid)
    return process


def stop(process):
    """Returns when heaptap, a child of this process, runs no more."""
    process.signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def begin_dump(process, name="never.prof"):
    """Asks for a dump while the collector is stopped; returns when the process waits for the answer."""
    stop(process)
    before = waits(process.target_pid).dump_answers
    process.tell(f"write string prof.dump {name}")
    wait_until(lambda: waits(process.target_pid).dump_answers != before, "the process waits for its dump")


def assert_goes_on(heaptap, process, lines):
    """The program has printed this many lines, and its next dump is complete."""
    assert len(said(process)) == lines, said(process)
    assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
    give_patience(process.target_pid)
    assert process.ask("write string prof.dump goes-on.prof") == "0", process.stderr()
    assert live(heaptap.dump_named("goes-on.prof"), "keep_blocks")[0] >= 3


def assert_no_torn_file(lab):
    """Every file under a requested name is a complete dump."""
    for where, _, files in os.walk(lab.folder):
        for name in files:
            if re.search(r"\.(heap|prof)(\.\d+)?$", name):
                Dump(os.path.join(where, name)).check()
