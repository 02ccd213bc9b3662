# SPDX-License-Identifier: Apache-2.0
"""What makes the daemon write dumps while processes live, and which of them stay.

Recording is exact; error bounds: none.
"""

import ctypes
import os
import signal

from daemon import EXACT
from harness import wait_until
from symbols import kept


def sigqueue(pid, number, value):
    """As sigqueue(3)."""
    library = ctypes.CDLL(None, use_errno=True)
    library.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    if library.sigqueue(pid, number, value) != 0:
        raise OSError(ctypes.get_errno(), "sigqueue")


def test_high_water(lab, start_daemon):
    """From 1 MiB of live memory on, at each mark that is 20 % above the last one; not when it falls and rises
    again below the mark."""
    daemon = start_daemon("--exact", "--high-water")
    (puppet,) = start_puppets(lab, daemon)
    puppet.ask("keep 900 1024")
    puppet.ask("keep 200 1024")
    (dump,) = wait_dumps(lab, 1, kind="u")
    assert kept(dump.read()) >= 1020
    puppet.ask("drop")
    puppet.ask("keep 1100 1024")
    puppet.ask("keep 4000 1024")
    # Several marks at once may be one dump. It has passed the last mark below 5100 blocks.
    found = wait_dumps(lab, 2, kind="u")
    assert kept(found[1].read()) >= 1220
    # The peak is the mark that was passed, and list has it.
    assert daemon.processes()[puppet.target_pid]["peak_bytes"] >= 5100 * 1024


def test_interval(lab, start_daemon):
    """Every MiB that is allocated, live or not."""
    daemon = start_daemon("--exact", "--interval", "1M")
    (puppet,) = start_puppets(lab, daemon)
    puppet.ask("keep 10 100")
    for number in (1, 2, 3):
        puppet.ask("churn 1024 1024")
        wait_dumps(lab, number, kind="i")
        # Two within a second are one.
        wait_until(lambda: is_due(lab, daemon, puppet), "the next may come")
    for dump in lab.dumps(kind="i"):
        assert kept(dump.read()) == 10


def is_due(lab, daemon, puppet):
    """A second after its last dump, as the file has it."""
    newest = max(os.stat(dump.path).st_mtime for dump in lab.dumps(puppet.target_pid))
    return os.stat(touch(lab)).st_mtime > newest + 1


def touch(lab):
    path = lab.path("now")
    with open(path, "w", encoding="ascii"):
        os.utime(path)
    return path


def test_schedule(lab, start_daemon):
    daemon = start_daemon("--exact", "--every", "1s")
    one, other = start_puppets(lab, daemon, 2)
    one.ask("keep 10 100")
    for puppet in (one, other):
        first, second = wait_dumps(lab, 2, pid=puppet.target_pid, kind="i")[:2]
        assert os.stat(second.path).st_mtime - os.stat(first.path).st_mtime > 0.9
    # A rule may have another schedule.
    assert daemon.metrics()['heaptap_dumps_total{trigger="interval"}'] >= 4


def test_rules_have_triggers(lab, start_daemon):
    daemon = start_daemon("--exact", "--rule", "comm=puppet interval=1M", "--rule", "comm=* interval=1K")
    (puppet,) = start_puppets(lab, daemon)
    puppet.ask("churn 512 1024")
    daemon.client("dump", puppet.target_pid, "-o", lab.path("by_hand"))
    assert lab.dumps(kind="i") == []
    puppet.ask("churn 600 1024")
    wait_dumps(lab, 1, kind="i")


def test_usr1_dumps_all(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppets = start_puppets(lab, daemon, 3)
    for number, puppet in enumerate(puppets):
        puppet.ask(f"keep {number + 10} 100")
    daemon.process.signal(signal.SIGUSR1)
    found = wait_dumps(lab, 3)
    assert {dump.pid: kept(dump.read()) for dump in found} == {
        puppet.target_pid: number + 10 for number, puppet in enumerate(puppets)}


def test_usr2_dumps_the_largest_or_the_pid_that_comes_with_it(lab, start_daemon):
    daemon = start_daemon("--exact")
    small, large = start_puppets(lab, daemon, 2)
    small.ask("keep 10 100")
    large.ask("keep 10 1000")
    daemon.process.signal(signal.SIGUSR2)
    daemon.wait_said("^heaptap: wrote ")
    assert [dump.pid for dump in lab.dumps()] == [large.target_pid]
    sigqueue(daemon.process.pid, signal.SIGUSR2, small.target_pid)
    daemon.wait_said("^heaptap: wrote ", count=2)
    assert {dump.pid for dump in lab.dumps()} == {small.target_pid, large.target_pid}
    sigqueue(daemon.process.pid, signal.SIGUSR2, os.getpid())
    daemon.wait_said(f"^heaptap: process {os.getpid()} is not recorded")


def start_puppets(lab, daemon, number=1):
    result = [lab.preloaded_puppet(env=EXACT) for _ in range(number)]
    for puppet in result:
        wait_until(lambda puppet=puppet: puppet.target_pid in daemon.processes(), "it is recorded")
    return result


def wait_dumps(lab, number, **which):
    """Dumps get their names when they are whole."""
    def found():
        dumps = lab.dumps(**which)
        return len(dumps) >= number and dumps
    return wait_until(found, f"{number} dumps")
