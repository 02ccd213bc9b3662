# SPDX-License-Identifier: Apache-2.0
"""A process whose main thread has ended while others go on is a process like any other.

The kernel shows its main thread as a zombie: /proc/PID has no mappings, no memory and no descriptors then, and the files of
a thread that lives have them. The recording is exact; what a program allocated before it noticed that may be missing.
"""

import json
import os
import re
import shutil
import signal

import pytest

import symbols
from daemons import EXACT
from harness import LIBRARY, target, wait_until
from lab import READY_BLOCKS
from symbols import kept

DAEMON = ["--exact"]
BEGINNING = ("beginning",)  # what a process allocates before its file is known


@pytest.fixture
def puppet(lab):
    return lab.preloaded_puppet(env=EXACT)


def end_main(puppet):
    """Returns when /proc/PID shows a zombie."""
    assert puppet.ask("end_main") == "ended_main"

    def state():
        with open(f"/proc/{puppet.target_pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]
    wait_until(lambda: state() == "Z", "the main thread is a zombie")


def test_attach(lab, puppet):
    end_main(puppet)
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGINT)
    session.ends()
    dump = lab.only_dump(puppet.target_pid, "f")
    assert 40000 - READY_BLOCKS <= kept(dump) <= 40000
    # Names come from the files that the process has mapped.
    assert symbols.live(dump, "keep_blocks")[0] == kept(dump)
    puppet.ends()


def test_attach_by_name(lab):
    puppet = lab.preloaded_puppet("headless")
    end_main(puppet)
    session = lab.heaptap("attach", "headless", "--exact")
    session.wait_said(rf"^heaptap: attached to {puppet.pid} \(headless\)")
    session.signal(signal.SIGINT)
    session.ends()


def test_attached_before(lab, puppet):
    """The recording goes on when the main thread ends."""
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 10000 100")
    end_main(puppet)
    puppet.ask("keep 10000 100")
    session.signal(signal.SIGINT)
    session.ends()
    assert 20000 - READY_BLOCKS <= kept(lab.only_dump(puppet.target_pid, "f")) <= 20000
    puppet.ends()


def test_it_asks_for_a_dump(lab, daemon):
    """The daemon takes the file from a thread that lives."""
    puppet = lab.preloaded_puppet(env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    end_main(puppet)
    puppet.ask("keep 10 1000")
    daemon.wait_recorded(puppet.pid)
    path = lab.path("asked.1.0.m0.heap")
    assert puppet.ask(f"write string prof.dump {path}") == "0"
    assert os.path.getsize(path) > 0
    puppet.ends()


def test_doctor(lab, puppet):
    end_main(puppet)
    session = lab.heaptap("doctor", "-p", puppet.target_pid)
    session.records = False
    session.ends()
    assert re.search(rf"^ok +sampled allocator +{re.escape(LIBRARY)}, lg_prof_sample 0", session.stdout(), re.MULTILINE), session.stdout()
    puppet.ends()


def test_list_without_a_daemon(lab, puppet):
    end_main(puppet)
    session = lab.heaptap("list")
    session.records = False
    session.ends()
    assert re.search(rf"^ *{puppet.target_pid}  puppet", session.stdout(), re.MULTILINE), session.stdout()
    puppet.ends()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_daemon(lab, new_daemon, when):
    """It is started before the process or after the end of the main thread; the process is listed with its memory, reported
    with names, and is among the ended ones."""
    daemon = new_daemon(*DAEMON, losses_allowed=BEGINNING)
    if when == "before":
        daemon.start()
    puppet = lab.preloaded_puppet(env=EXACT)
    end_main(puppet)
    if when == "after":
        daemon.start()
    puppet.ask("keep 1000 4000")
    entry = daemon.wait_recorded(puppet.pid)
    assert (entry["command"], entry["executable"]) == ("puppet", os.path.realpath(target("puppet")))
    assert re.fullmatch(r"\d+\.\d[KM]", daemon.row(puppet.pid)["RSS"])
    resident = json.loads(daemon.get(f"/pid/{puppet.pid}/resident.json").body)
    assert resident["anonymous"] > 0 and resident["files"] > 0
    report = daemon.client("report", puppet.pid)
    assert "keep_blocks" in report
    assert re.search(r"^  resident +\d+\.\dM", report, re.MULTILINE), report
    puppet.ends()
    ended = daemon.wait_ended(puppet.pid)
    assert ended["command"] == "puppet" and ended["live_objects"] >= 1000 - READY_BLOCKS


def test_a_library_that_is_new_to_the_daemon(lab, start_daemon):
    """The main thread ends before the daemon can look at what the process has mapped."""
    daemon = start_daemon(*DAEMON, losses_allowed=BEGINNING)
    library = lab.path("libheaptap.so")
    shutil.copy(LIBRARY, library)
    daemon.process.signal(signal.SIGSTOP)
    puppet = lab.puppet(env={**EXACT, "LD_PRELOAD": library})
    end_main(puppet)
    daemon.process.signal(signal.SIGCONT)
    wait_until(lambda: puppet.ask("keep 100 1000") and puppet.pid in daemon.processes(), "the process is recorded")
    puppet.ends()
    assert daemon.wait_ended(puppet.pid)["command"] == "puppet"


def test_run_names_what_it_opened_afterwards(lab):
    session = lab.puppet_under_heaptap("--exact")
    end_main(session)
    session.ask("keep 1000 100")
    session.ends()
    assert symbols.live(lab.only_dump(), "keep_blocks")[0] == 1000
