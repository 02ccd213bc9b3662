# SPDX-License-Identifier: Apache-2.0
"""heaptap daemon --end, with a daemon and without; dump --all while processes end; a program with its own library."""

import os
import shutil
import signal

import pytest

from daemons import EXACT
from harness import LIBRARY, Session, target, wait_until

DAEMON = ["--exact"]


def end(daemon):
    session = Session(daemon.command("--end"), daemon.folder)
    session.ends()
    return session


def states(daemon):
    return [name for name in os.listdir(os.path.join(daemon.state_folder, "recording")) if name.endswith(".json")]


def test_it_ends_a_daemon_that_runs(lab, start_daemon):
    daemon = start_daemon(*DAEMON)
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask("keep 10 1000")
    daemon.wait_recorded(puppet.pid)
    wait_until(lambda: states(daemon), "the state of the process is saved")
    said = end(daemon).lines()
    assert said[0] == f"heaptap: the daemon, process {daemon.process.pid}, has ended"
    daemon.process.ends()
    assert not os.path.exists(daemon.pin_folder)
    assert states(daemon) == []
    puppet.ask("keep 10 1000")


def test_it_ends_what_a_daemon_has_left(lab, start_daemon):
    """Prints no advice that only matters for a recording that continues."""
    daemon = start_daemon(*DAEMON)
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask("keep 10 1000")
    daemon.wait_recorded(puppet.pid)
    wait_until(lambda: states(daemon), "the state of the process is saved")
    daemon.stop(signal.SIGTERM)
    said = end(daemon).lines()
    assert said[-1] == "heaptap: the recording has ended"
    assert not [line for line in said if "maps keep their sizes" in line]
    assert states(daemon) == []


def test_it_needs_no_library(lab, new_daemon):
    """The library that the daemon was restricted to has been removed since, and its process still runs."""
    copy = lab.path("libcopy.so")
    shutil.copy(LIBRARY, copy)
    daemon = new_daemon(*DAEMON, "--only-library", copy)
    daemon.start()
    puppet = lab.puppet(env={**EXACT, "LD_PRELOAD": copy})
    puppet.ask("keep 10 1000")
    daemon.wait_recorded(puppet.pid)
    daemon.stop()
    os.unlink(copy)
    assert end(daemon).lines()[-1] == "heaptap: the recording has ended"
    puppet.ask("keep 10 1000")


def test_a_library_that_nobody_knew(lab, start_daemon):
    """The process is recorded since its exec, and its library is a new file."""
    daemon = start_daemon(*DAEMON)
    copy = lab.path("libcopy.so")
    shutil.copy(LIBRARY, copy)
    puppet = lab.preloaded("bash", "-c", f"exec env LD_PRELOAD={copy} {target('puppet')}", env=EXACT, talks=True)
    puppet.answer()

    def is_recorded():
        """A thread starts to sample at its next slow path."""
        puppet.ask("churn 1000 1000")
        entry = daemon.processes().get(puppet.pid)
        return entry and entry["samples"] and entry["active"] and entry
    entry = wait_until(is_recorded, "its samples are recorded, and its control block is known")
    assert (entry["command"], entry["lg_sample"]) == ("puppet", 0)
    daemon.client("dump", puppet.pid)
    assert daemon.dumps(puppet.pid)[0].prefix == "puppet"


@pytest.mark.product
def test_dump_all_passes_over_processes_that_have_ended(lab, start_daemon):
    daemon = start_daemon(*DAEMON)
    puppet = lab.preloaded_puppet(env=EXACT)
    puppet.ask("keep 10 1000")
    daemon.wait_recorded(puppet.pid)
    lab.preloaded("sh", "-c", "while :; do /bin/ls >/dev/null; done", env=EXACT)
    for _ in range(20):
        paths = daemon.client("dump", "--all").splitlines()
        assert any(f"/puppet.{puppet.pid}." in path for path in paths), paths
