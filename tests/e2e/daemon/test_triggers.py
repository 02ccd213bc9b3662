# SPDX-License-Identifier: Apache-2.0
"""What makes the daemon write dumps of living processes: options, rules, and signals to the daemon.

Recording is exact; error bounds: none.
"""

import ctypes
import os
import signal
import time

from daemons import EXACT
from harness import wait_until
from symbols import kept

MI = 1 << 20
DAEMON = ["--exact", "--every", "1s",
          "--rule", "comm=marks high-water=20 every=off", "--rule", "comm=bytes interval=1M every=off",
          "--rule", "comm=seldom every=1h", "--rule", "comm=puppet every=off"]


def sigqueue(pid, number, value):
    """sigqueue(3)."""
    library = ctypes.CDLL(None, use_errno=True)
    library.sigqueue.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    if library.sigqueue(pid, number, value) != 0:
        raise OSError(ctypes.get_errno(), "sigqueue")


def recorded_puppet(lab, daemon, name=None):
    puppet = lab.preloaded_puppet(name, env=EXACT)
    daemon.wait_recorded(puppet.pid)
    return puppet


def test_high_water(lab, daemon):
    """From 1 MiB of live memory on, at each mark that is 20 % above the last one; not when memory falls and rises again
    below the mark."""
    puppet = recorded_puppet(lab, daemon, "marks")
    puppet.ask("keep 900 1024")
    puppet.ask("keep 200 1024")
    (dump,) = daemon.wait_dumps(1, pid=puppet.pid)
    assert dump.kind == "u"
    assert kept(dump.read()) >= 1020
    puppet.ask("drop")
    puppet.ask("keep 1100 1024")
    puppet.ask("keep 4000 1024")
    # Several marks at once may give one dump. The last mark is below 5100 blocks.
    found = daemon.wait_dumps(2, pid=puppet.pid, kind="u")
    assert kept(found[1].read()) >= 1220
    # The list shows the passed mark as the peak.
    assert daemon.processes()[puppet.pid]["peak_bytes"] >= 5100 * 1024


def is_due(daemon, puppet, now):
    """Whether the last dump is a second old, by the file system's clock."""
    newest = max(os.stat(dump.path).st_mtime for dump in daemon.dumps(puppet.pid))
    with open(now, "w", encoding="ascii"):
        os.utime(now)
    return os.stat(now).st_mtime > newest + 1


def test_interval(lab, daemon):
    """After every allocated MiB, live or not."""
    puppet = recorded_puppet(lab, daemon, "bytes")
    puppet.ask("keep 10 100")
    puppet.ask("churn 512 1024")
    # After a dump by hand, heaptap has handled all earlier events.
    daemon.dump(puppet.pid, lab.path("by_hand"))
    assert daemon.dumps(puppet.pid) == []
    for number in (1, 2):
        puppet.ask("churn 1024 1024")
        daemon.wait_dumps(number, pid=puppet.pid, kind="i")
        # Two within a second are one.
        wait_until(lambda: is_due(daemon, puppet, lab.path("now")), "the next may come")
    assert [kept(dump.read()) for dump in daemon.dumps(puppet.pid, kind="i")] == [10, 10]


def test_schedule(lab, daemon):
    """Every second, but for those that have another schedule by a rule."""
    begun = time.time()
    often, seldom = recorded_puppet(lab, daemon, "often"), recorded_puppet(lab, daemon, "seldom")
    for puppet in (often, seldom):
        puppet.ask("keep 10 100")

    def scheduled_dumps():
        return daemon.metrics().get('heaptap_dumps_total{trigger="interval"}', 0)
    before = scheduled_dumps()
    third = daemon.wait_dumps(3, pid=often.pid, kind="i")[2]
    # Any of them may be late, none is early; clocks of files are coarse.
    assert os.stat(third.path).st_mtime - begun > 1.9
    assert daemon.dumps(seldom.pid) == []
    assert scheduled_dumps() > before


def test_usr1_dumps_all(lab, daemon):
    puppets = [recorded_puppet(lab, daemon) for _ in range(3)]
    for number, puppet in enumerate(puppets):
        puppet.ask(f"keep {number + 10} 100")
    daemon.process.signal(signal.SIGUSR1)
    for number, puppet in enumerate(puppets):
        ((dump),) = daemon.wait_dumps(1, pid=puppet.pid)
        assert kept(dump.read()) == number + 10


def test_usr2_dumps_the_largest_or_the_pid_that_comes_with_it(lab, daemon):
    small, large = recorded_puppet(lab, daemon), recorded_puppet(lab, daemon)
    small.ask("keep 10 100")
    large.ask(f"keep 10 {64 * MI}")
    daemon.process.signal(signal.SIGUSR2)
    daemon.wait_dumps(1, pid=large.pid)
    assert daemon.dumps(small.pid) == []
    sigqueue(daemon.process.pid, signal.SIGUSR2, small.pid)
    daemon.wait_dumps(1, pid=small.pid)
    assert len(daemon.dumps(large.pid)) == 1
    sigqueue(daemon.process.pid, signal.SIGUSR2, os.getpid())
    daemon.wait_said(f"^heaptap: process {os.getpid()} is not recorded")
