# SPDX-License-Identifier: Apache-2.0
"""The daemon heals by itself: a clock that is set, a full history, a full disk, a stderr that nobody reads. Each test
measures how long it takes until all is well again, and says what was lost and where that is counted.

Recording is exact; error bounds: none.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import time

import pytest

from daemons import EXACT
from harness import PATIENCE_SECONDS, TIME_SCALE, target, wait_until
from heap_v2 import Dump
from history import SIZE, database, document, start, wait_known, wait_live
from symbols import kept

ARGUMENTS = ["--exact", "--history-interval", "100ms"]
HOUR = 3600
# Until all is well again.
HEALED_SECONDS = 5 * TIME_SCALE


@pytest.fixture
def heals(held):
    """with heals(WHAT): the time that the block takes is a row of the table, and below the bound."""
    @contextlib.contextmanager
    def measure(what):
        begin = time.monotonic()
        yield
        seconds = time.monotonic() - begin
        assert seconds < HEALED_SECONDS, what
        held(what, f"{HEALED_SECONDS:.0f} s", f"{seconds:.1f} s")
    return measure


class Disk:
    """A small disk for a test."""

    def __init__(self, path, size):
        self.path = path
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "heaptap-test", path], check=True)

    def fill(self):
        with open(os.path.join(self.path, "fill"), "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096) == 4096:
                pass

    def make_room(self):
        os.unlink(os.path.join(self.path, "fill"))


@pytest.fixture
def disk(lab):
    disk = Disk(lab.path("disk"), "4m")
    yield disk
    subprocess.run(["umount", "-l", disk.path], check=True)


def wait_failing(daemon, *tasks):
    """Waits until exactly these tasks fail, as all clients are told."""
    series = {f'heaptap_failing{{task="{task}"}}' for task in tasks}

    def is_shown():
        listed = {entry["task"] for entry in json.loads(daemon.client("list", "--json"))["failing"]}
        return listed == set(tasks) and series == {
            name for name in daemon.metrics() if name.startswith("heaptap_failing")}
    wait_until(is_shown, f"these tasks fail, and no others: {tasks}")


def killed_with_a_dump(lab, daemon, count):
    """A process that is killed and has a last dump with all its blocks."""
    puppet = start(lab, daemon)
    puppet.ask(f"keep {count} {SIZE}")
    puppet.signal(signal.SIGKILL)
    puppet.ends(-signal.SIGKILL)
    (dump,) = daemon.wait_dumps(1, pid=puppet.pid)
    assert kept(Dump(dump.path)) == count
    assert daemon.wait_ended(puppet.pid)["losses"] == {}


@pytest.mark.parametrize("shift", (-HOUR, HOUR), ids=("back", "forward"))
def test_the_clock_is_set(lab, new_daemon, heals, shift):
    """Last dumps, the list of ended processes and the history go on; nothing is lost."""
    shift_path = lab.path("shift")
    with open(shift_path, "wb") as file:
        file.write(struct.pack("q", 0))
    daemon = new_daemon(*ARGUMENTS, env={"LD_PRELOAD": target("libshifted_clock.so"), "CLOCK_SHIFT": shift_path})
    daemon.start()
    killed_with_a_dump(lab, daemon, 3)
    staying = start(lab, daemon)
    wait_known(daemon, staying.pid)
    with open(shift_path, "r+b") as file:
        file.write(struct.pack("q", shift))
    set_at = time.time() + shift
    with heals(f"the clock is set by {shift} s: last dump and end of a process"):
        killed_with_a_dump(lab, daemon, 5)
    with heals(f"the clock is set by {shift} s: live memory in the history"):
        staying.ask(f"keep 10 {SIZE}")
        sql = ("SELECT 1 FROM points JOIN processes ON id = process WHERE pid = ? AND time BETWEEN ? AND ? "
               "AND points.live_bytes = ?")

        def is_written():
            with contextlib.closing(sqlite3.connect(database(daemon))) as connection:
                values = (staying.pid, (set_at - 1) * 1000, (set_at + 2 * HEALED_SECONDS) * 1000, 10 * SIZE)
                return connection.execute(sql, values).fetchone()
        wait_until(is_written, "the history has a point of that time")
    wait_failing(daemon)


def used_pages(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count"
                                  ).fetchone()[0]


def test_a_full_history(lab, start_daemon, heals):
    """Old points go; every new process is there, also after a restart, and nothing is said."""
    daemon = start_daemon(*ARGUMENTS, "--history-bytes", "1M")
    most_pages = 0
    for _ in range(30):
        programs = [lab.preloaded(target("contexts"), 8, "stay", env=EXACT) for _ in range(4)]
        for program in programs:
            wait_known(daemon, program.pid)
        most_pages = max(most_pages, used_pages(database(daemon)))
        for program in programs:
            program.signal(signal.SIGKILL)
            program.ends(-signal.SIGKILL)
    assert most_pages > 80, "of 96: it was full"
    assert "cannot write the history" not in daemon.process.stderr()
    daemon.restart()
    with heals("a full history, and a new daemon: a new process is in it"):
        program = lab.preloaded(target("contexts"), 8, "stay", env=EXACT)
        wait_known(daemon, program.pid)
    wait_failing(daemon)


def test_a_full_disk(lab, start_daemon, disk, heals):
    """Points of that time are lost, which is said once and is a figure meanwhile."""
    daemon = start_daemon(*ARGUMENTS, "--history", os.path.join(disk.path, "h.db"))
    puppet = start(lab, daemon)
    wait_known(daemon, puppet.pid)
    disk.fill()
    puppet.ask(f"keep 10 {SIZE}")
    wait_failing(daemon, "history")
    daemon.dump(puppet.pid, lab.path("still.prof"))
    assert kept(Dump(lab.path("still.prof"))) == 10
    disk.make_room()
    with heals("a full disk: the history is written again"):
        wait_failing(daemon)
        wait_live(daemon, puppet.pid, 10 * SIZE)
    assert daemon.process.stderr().count("cannot write the history") == 1
    assert len(document(daemon, puppet.pid)["processes"]) == 1


def test_a_history_folder_that_comes_back(lab, start_daemon, heals):
    folder = lab.path("history")
    os.mkdir(folder)
    daemon = start_daemon(*ARGUMENTS, "--history", os.path.join(folder, "h.db"))
    puppet = start(lab, daemon)
    wait_known(daemon, puppet.pid)
    os.rename(folder, folder + ".moved")
    wait_failing(daemon, "history")
    puppet.ask(f"keep 10 {SIZE}")
    os.mkdir(folder)
    with heals("the folder of the history was moved, and is there again, empty"):
        wait_live(daemon, puppet.pid, 10 * SIZE)
    wait_failing(daemon)


def test_a_full_state_folder(lab, new_daemon, disk, heals):
    """The states of that time are saved later. A dump of that time is lost, which is said and counted."""
    daemon = new_daemon("--exact", "--history", "none")
    daemon.state_folder = os.path.join(disk.path, "state")
    daemon.start()
    disk.fill()
    puppet = start(lab, daemon)
    wait_failing(daemon, "states")
    dying = start(lab, daemon)
    dying.ask(f"keep 3 {SIZE}")
    dying.signal(signal.SIGKILL)
    dying.ends(-signal.SIGKILL)
    daemon.wait_said("No space left on device; the dump is lost")
    assert daemon.metrics()["heaptap_dump_errors_total"] == 1
    disk.make_room()
    with heals("a full state folder: the states of all processes are saved"):
        wait_until(lambda: puppet.pid in daemon.saved_pids(), "the state is saved")
        wait_failing(daemon)
    assert daemon.process.stderr().count("cannot save the states") == 1
    killed_with_a_dump(lab, daemon, 3)


def test_a_state_folder_that_comes_back(lab, new_daemon, heals):
    """A dump of the time without the folder is lost, which is said and counted. The states of all processes are saved again."""
    daemon = new_daemon("--exact", "--history", "none")
    daemon.state_folder = lab.path("state")
    daemon.start()
    staying = start(lab, daemon)
    wait_until(lambda: staying.pid in daemon.saved_pids(), "its state is saved")
    shutil.rmtree(daemon.state_folder)
    dying = start(lab, daemon)
    wait_failing(daemon, "states")
    dying.ask(f"keep 3 {SIZE}")
    dying.signal(signal.SIGKILL)
    dying.ends(-signal.SIGKILL)
    daemon.wait_said("No such file or directory; the dump is lost")
    assert daemon.metrics()["heaptap_dump_errors_total"] == 1
    os.mkdir(daemon.state_folder, 0o700)
    with heals("the state folder was removed, and is there again, empty: states and dumps"):
        wait_until(lambda: staying.pid in daemon.saved_pids(), "its state is saved again")
        wait_failing(daemon)
        killed_with_a_dump(lab, daemon, 3)


def test_a_stalled_stderr(lab, new_daemon, heals):
    """The recording does not notice it, and no line is cut."""
    pipe = lab.path("stderr")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    filler = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while os.write(filler, b"-" * 1024):
            pass
    os.close(filler)
    daemon = new_daemon(*ARGUMENTS)
    daemon.launch(before=["/bin/sh", "-c", f'exec "$@" 2>{pipe}', "sh"])
    wait_until(lambda: os.path.exists(daemon.socket), "the daemon answers")
    with heals("a stderr that nobody reads: last dump and end of a process"):
        killed_with_a_dump(lab, daemon, 3)
    assert daemon.process.alive()
    said = b""
    with heals("a stderr that nobody reads: all messages, once somebody reads"):
        while said.count(b"heaptap: wrote ") < 1:
            with contextlib.suppress(BlockingIOError):
                said += os.read(reader, 4096)
    lines = said.lstrip(b"-").decode().splitlines()
    assert lines[0].startswith("heaptap: recording; clients at ")
    assert all(line.startswith(("heaptap: ", "{")) for line in lines), lines
    assert "lost" not in said.decode()
    # Its last words, too.
    daemon.process.signal(signal.SIGTERM)

    def read_all():
        nonlocal said
        with contextlib.suppress(BlockingIOError):
            said += os.read(reader, 4096)
        return not daemon.process.alive()
    wait_until(read_all, "it has ended", PATIENCE_SECONDS)
    os.set_blocking(reader, True)
    while more := os.read(reader, 4096):
        said += more
    os.close(reader)
    assert b"heaptap: the recording continues in the kernel" in said
