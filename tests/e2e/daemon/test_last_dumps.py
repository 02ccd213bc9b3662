# SPDX-License-Identifier: Apache-2.0
"""Last dumps are written once, of what was recorded.
"""

import os
import shutil

from daemon import EXACT
from harness import target, wait_until
from security import assert_serves, keeping_puppet


def test_killed_between_a_last_dump_and_the_end_of_the_books(lab, start_daemon):
    """The next collector does not close them once more."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always")
    for _ in range(5):
        puppet = keeping_puppet(lab)
        daemon.wait_recorded(puppet.pid)
        puppet.wait()
        wait_until(lambda: [name for name in os.listdir(daemon.state_folder) if f".{puppet.pid}." in name],
                   "the last dump is there")
        daemon.restart()
        assert_serves(lab, daemon)
        dumps = [name for name in os.listdir(daemon.state_folder) if f".{puppet.pid}." in name]
        assert len(dumps) == 1, dumps
        assert [name for name in os.listdir(daemon.state_folder) if ".0.0." in name] == []


def test_left_alone_and_then_another_program(lab, start_daemon):
    """A rule leaves a process alone; what it runs next is recorded, and is the one that has the PID."""
    daemon = start_daemon("--exact", "--dump-at-exit", "always", "--rule", "comm=left* record=off")
    left = lab.path("left_alone")
    shutil.copy(target("puppet"), left)
    process = lab.preloaded(left, talks=True, env=EXACT)
    process.answer()
    process.ask("keep 3 1000")
    process.tell(f"exec {target('puppet')}")
    process.answer()
    process.ask("keep 5 1000")
    entry = daemon.wait_recorded(process.pid)
    assert entry["command"] == "puppet"
    assert daemon.get(f"/pid/{process.pid}/heap").status == 200
    process.ends()
    daemon.wait_said(rf"^heaptap: wrote \S+/puppet\.{process.pid}\.0\.f\.heap: ")
    assert [name for name in os.listdir(daemon.state_folder) if name.startswith("left")] == []
