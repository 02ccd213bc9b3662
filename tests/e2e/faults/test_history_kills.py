# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step of the history's writes. The next daemon goes on with the database: it complains of nothing, the
database is sound, no point is there twice, and none is missing that a reader saw before the kill.

What the kernel has of a file survives the kill; a crash of the machine is SQLite's own affair.
"""

import contextlib
import itertools
import os
import signal
import sqlite3

import pytest

import inject
from daemons import Daemon
from harness import PATIENCE_SECONDS, wait_until
from history import SIZE, database, document
from security import keeping_puppet

ARGUMENTS = ("--exact", "--history-interval", "100ms")

# By which SQLite and the daemon change the files of the history.
CALLS = ("openat", "pwrite64", "fdatasync", "ftruncate", "unlink")
# All kills at one call.
LOOP_SECONDS = 3600


def files(daemon):
    return [database(daemon) + suffix for suffix in ("", "-journal", "-wal", "-shm")]


@contextlib.contextmanager
def reading(daemon):
    connection = sqlite3.connect(f"file:{database(daemon)}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)
    try:
        yield connection
    finally:
        connection.close()


def points(daemon):
    """The points that are committed; none before there are tables."""
    try:
        with reading(daemon) as connection:
            return set(connection.execute("SELECT level, time, process, live_bytes, live_objects, rows FROM points"))
    except sqlite3.OperationalError:
        return set()


def killed_in(lab, call, number):
    """A daemon writes two readings of a puppet and ends; it is killed at this call, unless it makes fewer. Checks the
    next daemon. Returns whether it was killed."""
    # The puppet runs before the daemon.
    daemon = Daemon(lab.folder, *ARGUMENTS, losses_allowed=("beginning",))
    try:
        log = os.path.join(daemon.folder, "log")
        puppet = keeping_puppet(lab, count=0)
        session = daemon.launch(before=inject.killed_at(call, number, log, files(daemon)))
        wait_until(lambda: "heaptap: recording; " in session.stderr() or not session.alive(), "it records or is killed")
        seen = set()
        for blocks in (10, 20):
            puppet.ask(f"keep 10 {SIZE}")

            def has_point(blocks=blocks):
                if not session.alive():
                    return True
                seen.update(points(daemon))
                return any(size == blocks * SIZE for _, _, _, size, _, _ in seen)
            wait_until(has_point, f"a point has {blocks} blocks, or it is killed")
        if session.alive():
            session.signal(signal.SIGTERM)
        was_killed = session.wait() == -signal.SIGKILL
        assert was_killed or session.popen.returncode == 0, session.stderr()

        daemon.start()
        latest = max((time for _, time, *_ in seen), default=0)
        wait_until(lambda: any(time > latest for _, time, *_ in points(daemon)), "the history goes on")
        with reading(daemon) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert seen <= points(daemon), "points that a reader saw are gone"
        wait_until(lambda: daemon.get(f"/history.json?pid={puppet.pid}").status == 200, "the puppet has a history")
        shown = document(daemon, puppet.pid)
        assert len(shown["processes"]) == 1, "the same process"
        times = [point["time"] for point in shown["points"]]
        assert times == sorted(set(times))
        assert not [line for line in daemon.process.lines() if "history" in line.replace(daemon.folder, "")]
        assert not os.path.exists(database(daemon) + ".corrupt")
        puppet.ends()
    finally:
        daemon.end()
    return was_killed


# The creation of the files, the tables, points that a reader has seen, a commit.
@pytest.mark.parametrize("call, number", (("openat", 2), ("pwrite64", 40), ("pwrite64", 100), ("fdatasync", 3)))
def test_a_kill(lab, call, number):
    assert killed_in(lab, call, number)


@pytest.mark.slow
@pytest.mark.timeout(LOOP_SECONDS)
@pytest.mark.parametrize("call", CALLS)
def test_a_kill_at_each(lab, held, call):
    number = next(number for number in itertools.count(1) if not killed_in(lab, call, number))
    held(f"kills at {call} of the history", "until none comes", f"{number - 1} kills")
    assert number > 1
