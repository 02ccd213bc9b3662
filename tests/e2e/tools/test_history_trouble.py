# SPDX-License-Identifier: Apache-2.0
"""The history in trouble: a killed daemon, a damaged file, a full disk. The recording never notices.

Recording is exact; error bounds: none.
"""

import json
import os
import sqlite3
import subprocess
import time

import pytest

from harness import wait_until
from heap_v2 import Dump
from history import SIZE, database, document, start, wait_known, wait_live
from lab import assert_one_clear_line
from security import keeping_puppet
from symbols import kept

ARGUMENTS = ["--exact", "--history-interval", "100ms"]


@pytest.fixture
def daemon(start_daemon):
    return start_daemon(*ARGUMENTS)


def test_goes_on_after_kill_9(lab, daemon):
    puppet = start(lab, daemon)
    puppet.ask(f"keep 10 {SIZE}")
    wait_live(daemon, puppet.pid, 10 * SIZE)
    before = document(daemon, puppet.pid)
    daemon.restart()
    puppet.ask(f"keep 5 {SIZE}")
    wait_live(daemon, puppet.pid, 15 * SIZE)
    after = document(daemon, puppet.pid)
    assert len(after["processes"]) == 1, "the same process"
    # All that was there, and nothing twice.
    times = [point["time"] for point in after["points"]]
    assert times == sorted(set(times))
    assert {point["time"] for point in before["points"]} <= set(times)
    assert [mark["kind"] for mark in after["marks"]] == ["start"]


def test_ends_that_no_daemon_saw(lab, daemon):
    """The end of such a process is the time of its last point, and the reason is unknown."""
    puppet = start(lab, daemon)
    wait_known(daemon, puppet.pid)
    daemon.kill()
    puppet.ends()
    before_the_next = time.time()
    daemon.start()
    wait_until(lambda: document(daemon, puppet.pid)["processes"][0]["ended"] is not None, "its end is noticed")
    shown = document(daemon, puppet.pid)
    ended = shown["processes"][0]["ended"]
    assert ended == shown["points"][-1]["time"] <= before_the_next
    assert [(mark["kind"], mark["text"], mark["time"]) for mark in shown["marks"][1:]] == [("end", "", ended)]


def test_a_corrupt_database_is_set_aside(lab, daemon):
    puppet = start(lab, daemon)
    wait_known(daemon, puppet.pid)
    daemon.stop()
    with open(database(daemon), "r+b") as file:
        file.seek(8192)
        file.write(b"\x5a" * 3 * 8192)
    daemon.start()
    said = f"the history in {database(daemon)} is corrupt"
    daemon.wait_said(said)
    wait_known(daemon, puppet.pid)
    assert os.path.exists(database(daemon) + ".corrupt")
    assert [line for line in daemon.process.lines() if "corrupt" in line] == [
        line for line in daemon.process.lines() if said in line and line.endswith("and a new one begins")]


def test_damage_while_the_daemon_runs(lab, daemon):
    """A reader finds it; the recording goes on."""
    puppet = start(lab, daemon)
    puppet.ask(f"keep 20 {SIZE}")
    wait_known(daemon, puppet.pid)
    with sqlite3.connect(database(daemon)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    # All pages, because the daemon may write some of them again at any time.
    with open(database(daemon), "r+b") as file:
        file.write(b"\x5a" * os.path.getsize(database(daemon)))

    def is_noticed():
        daemon.get("/history.json?name=puppet")
        return "is corrupt" in daemon.process.stderr()
    wait_until(is_noticed, "the damage is noticed")
    wait_known(daemon, puppet.pid)
    # Nothing is lost of what is recorded, the damaged file is kept, and the new one goes on.
    daemon.dump(puppet.pid, lab.path("still.prof"))
    assert kept(Dump(lab.path("still.prof"))) == 20
    with open(database(daemon) + ".corrupt", "rb") as file:
        assert b"\x5a" * 8192 in file.read()
    puppet.ask(f"keep 10 {SIZE}")
    wait_live(daemon, puppet.pid, daemon.processes()[puppet.pid]["live_bytes"])
    assert len([line for line in daemon.process.lines() if "is corrupt" in line]) == 1


def test_full_disk(lab, start_daemon):
    small = lab.path("small")
    os.mkdir(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "heaptap-test", small], check=True)
    try:
        daemon = start_daemon(*ARGUMENTS, "--history", os.path.join(small, "h.db"))
        puppet = start(lab, daemon)
        wait_known(daemon, puppet.pid)
        with open(os.path.join(small, "fill"), "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096) == 4096:
                    pass
            except OSError:
                pass
        puppet.ask(f"keep 10 {SIZE}")
        daemon.wait_said("cannot write the history in .*; the recording goes on")
        daemon.dump(puppet.pid, lab.path("still.prof"))
        os.unlink(os.path.join(small, "fill"))
        daemon.wait_said("the history is written again")
        wait_live(daemon, puppet.pid, 10 * SIZE)
        assert daemon.process.stderr().count("cannot write the history") == 1
        assert len(document(daemon, puppet.pid)["processes"]) == 1
        daemon.stop()
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_no_history(lab, start_daemon):
    daemon = start_daemon("--exact", "--history", "none")
    puppet = start(lab, daemon)
    session = lab.heaptap("history", puppet.pid, "--socket", daemon.socket)
    session.records = False
    assert_one_clear_line(session, 3, "the daemon keeps no history")
    assert not os.path.exists(database(daemon))


def test_a_file_that_cannot_be_written(lab, start_daemon):
    """The daemon records all the same."""
    daemon = start_daemon(*ARGUMENTS, "--history", "/proc/history.db")
    daemon.wait_said("cannot write the history in /proc/history.db: .*; the recording goes on")
    puppet = keeping_puppet(lab, count=0)
    daemon.wait_listed(puppet.pid)
    answer = daemon.request("POST", "/settle")
    assert (answer.status, json.loads(answer.body)["error"]) == (503, "the collector did not write the history")
    daemon.dump(puppet.pid, lab.path("x.prof"))
    session = lab.heaptap("history", puppet.pid, "--socket", daemon.socket)
    session.records = False
    assert_one_clear_line(session, 3, "there is no history yet")

