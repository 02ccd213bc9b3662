# SPDX-License-Identifier: Apache-2.0
"""How processes end under the daemon, and their profile at the moment of death; which ends leave one, by rule.

One leak is sampled at the default rate with a fixed seed; everything else is exact. Error bound of the leak: at least
95 % of live memory; in truth it is more than 99 %.
"""

import os
import re
import signal

import pytest

from daemons import EXACT
from harness import target, wait_until
from heap_v2 import Dump
from symbols import kept, stacks_through

MI = 1 << 20
DAEMON = ["--exact", "--rule", "comm=always dump-at-exit=always", "--rule", "comm=never dump-at-exit=never",
          "--rule", "comm=hungry lg-sample=19", "--rule", "comm=sh lg-sample=40"]


def assert_leak_is_named(lab, program, path, least):
    """Checks the dump with the test's own reader and with jeprof."""
    dump = Dump(path)
    leaked = dump.estimate(stacks_through(dump, "leak_block")).bytes
    everything = dump.estimate(dump.stacks).bytes
    assert leaked >= least
    assert leaked >= 0.95 * everything, (leaked, everything)
    text = lab.reader("jeprof", "--text", program, path)
    # flat, flat %, sum %, cumulative, cumulative %, name
    line = re.search(r"^\s*\S+\s+(\S+)%\s+\S+%\s+\S+\s+\S+% leak_block$", text, re.MULTILINE)
    assert line is not None, text
    assert float(line.group(1)) >= 95, text


def test_oom_kill_leaves_the_leak(lab, daemon, new_cgroup):
    """A program leaks in a memory cgroup until the kernel kills it."""
    limit = 128 * MI
    cgroup = new_cgroup(limit=limit)
    hungry = lab.preloaded(target("hungry"), env={"HEAPTAP_CONF": "prof_seed:1"}, preexec_fn=cgroup.enter)
    hungry.ends(-signal.SIGKILL)
    ended = daemon.wait_ended(hungry.pid)
    assert ended["by_oom_kill"], ended
    assert ended["status"] == signal.SIGKILL
    assert "OOM kill" in daemon.client("list", "--ended")
    (dump,) = daemon.dumps(hungry.pid)
    assert (dump.kind, dump.path) == ("f", ended["dump"])
    assert os.stat(dump.path).st_mode & 0o777 == 0o600
    # The program dies when it touches the block that does not fit; half of the limit is four standard errors below.
    assert_leak_is_named(lab, target("hungry"), dump.path, limit / 2)


def test_kill_is_no_oom_kill(lab, daemon, new_cgroup):
    """SIGKILL in a cgroup with free memory."""
    cgroup = new_cgroup(limit=1 << 40)
    hungry = lab.preloaded(lab.copy("hungry", "sated"), env=EXACT, preexec_fn=cgroup.enter)
    wait_until(lambda: len(hungry.stdout().splitlines()) >= 16, "16 MiB are leaked")
    hungry.signal(signal.SIGKILL)
    hungry.ends(-signal.SIGKILL)
    ended = daemon.wait_ended(hungry.pid)
    assert not ended["by_oom_kill"], ended
    (dump,) = daemon.dumps(hungry.pid)
    assert_leak_is_named(lab, hungry.command[0], dump.path, int(hungry.stdout().split()[-1]))


@pytest.mark.parametrize("name, how, status, dumps", (
    # A fatal signal leaves a dump, an exit does not, whatever its status.
    ("puppet", "segv", -signal.SIGSEGV, 1), ("puppet", "abort", -signal.SIGABRT, 1),
    ("puppet", "raise 9", -signal.SIGKILL, 1), ("puppet", "raise 15", -signal.SIGTERM, 1), ("puppet", "exit 0", 0, 0),
    ("puppet", "exit 1", 1, 0), ("puppet", "_exit 3", 3, 0),
    ("always", "exit 0", 0, 1), ("always", "_exit 1", 1, 1), ("always", "raise 9", -signal.SIGKILL, 1),
    ("never", "exit 0", 0, 0), ("never", "abort", -signal.SIGABRT, 0), ("never", "raise 9", -signal.SIGKILL, 0)))
def test_which_end_leaves_a_dump(lab, daemon, name, how, status, dumps):
    """Of a puppet that keeps 100 blocks."""
    puppet = lab.preloaded_puppet(name, env=EXACT)
    assert puppet.ask("keep 100 100") == "kept 100"
    puppet.tell(how)
    puppet.ends(status)
    ended = daemon.wait_ended(puppet.pid)
    assert not ended["by_oom_kill"]
    assert ended["status"] == (-status if status < 0 else status << 8)
    assert ended["live_objects"] == 100
    found = daemon.dumps(puppet.pid)
    assert [dump.kind for dump in found] == ["f"] * dumps
    assert [dump.path for dump in found] == [ended["dump"]] * dumps
    assert [kept(dump.read()) for dump in found] == [100] * dumps
    if not dumps:
        assert ended["dump"] == ""


def test_a_fatal_signal_before_the_first_sample(lab, start_daemon):
    """A program that ends before its first sample is listed as ended, without a dump."""
    daemon = start_daemon("--lg-sample", "40")
    program = lab.preloaded("/bin/sh", "-c", "kill -9 $$")
    program.ends(-signal.SIGKILL)
    ended = daemon.wait_ended(program.pid)
    assert (ended["samples"], ended["live_objects"], ended["dump"]) == (0, 0, "")
    assert daemon.dumps(program.pid) == []
