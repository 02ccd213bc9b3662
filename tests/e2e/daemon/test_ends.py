# SPDX-License-Identifier: Apache-2.0
"""How processes end under the daemon, and the profile of the moment of death.

The leak is sampled at the default rate with a fixed seed; all else is exact. Error bound of the leak: it has to be
95 % of what lives, in truth it is more than 99 %.
"""

import os
import re
import signal

import symbols
from daemon import EXACT
from harness import target, wait_until

MI = 1 << 20


def wait_ended(daemon, pid):
    """What the daemon says of a process that has ended."""
    def find():
        return next((entry for entry in daemon.ended() if entry["pid"] == pid), None)
    return wait_until(find, f"process {pid} is among the ended ones")


def assert_leak_is_named(lab, dump, path, least):
    """By the test's own reader, and by jeprof."""
    leaked = dump.estimate(symbols.stacks_through(dump, "leak_block")).bytes
    everything = dump.estimate(dump.stacks).bytes
    assert leaked >= least
    assert leaked >= 0.95 * everything, (leaked, everything)
    text = lab.reader("jeprof", "--text", target("hungry"), path)
    # flat, flat %, sum %, cumulative, cumulative %, name
    line = re.search(r"^\s*\S+\s+(\S+)%\s+\S+%\s+\S+\s+\S+% leak_block$", text, re.MULTILINE)
    assert line is not None, text
    assert float(line.group(1)) >= 95, text


def test_oom_kill_leaves_the_leak(lab, start_daemon, new_cgroup):
    """A program leaks in a memory cgroup until the kernel kills it."""
    limit = 128 * MI
    cgroup = new_cgroup(limit=limit)
    daemon = start_daemon()
    hungry = lab.preloaded(target("hungry"), env={"HEAPTAP_CONF": "prof_seed:1"}, preexec_fn=cgroup.enter)
    hungry.ends(-signal.SIGKILL)
    ended = wait_ended(daemon, hungry.pid)
    assert ended["by_oom_kill"], ended
    assert ended["status"] == signal.SIGKILL
    assert "OOM kill" in daemon.client("list", "--ended")
    (dump,) = lab.dumps(hungry.pid)
    assert (dump.kind, dump.path) == ("f", ended["dump"])
    assert os.stat(dump.path).st_mode & 0o777 == 0o600
    # It dies as it touches the block that does not fit; half of the limit would be four standard errors too few.
    assert_leak_is_named(lab, dump.read(), dump.path, limit / 2)


def test_kill_is_no_oom_kill(lab, start_daemon, new_cgroup):
    """SIGKILL by somebody, in a cgroup with room."""
    cgroup = new_cgroup(limit=1 << 40)
    daemon = start_daemon()
    hungry = lab.preloaded(target("hungry"), env=EXACT, preexec_fn=cgroup.enter)
    wait_until(lambda: len(hungry.stdout().splitlines()) >= 16, "16 MiB are leaked")
    hungry.signal(signal.SIGKILL)
    hungry.ends(-signal.SIGKILL)
    ended = wait_ended(daemon, hungry.pid)
    assert not ended["by_oom_kill"], ended
    (dump,) = lab.dumps(hungry.pid)
    assert_leak_is_named(lab, dump.read(), dump.path, int(hungry.stdout().split()[-1]))


def end_of(lab, daemon, how):
    """Ends a puppet that keeps 100 blocks of 100 bytes; its entry among the ended ones, and its dumps."""
    puppet = lab.preloaded_puppet(env=EXACT)
    assert puppet.ask("keep 100 100") == "kept 100"
    if how == "SIGKILL":
        puppet.signal(signal.SIGKILL)
    else:
        puppet.tell(how)
    status = puppet.wait()
    ended = wait_ended(daemon, puppet.target_pid)
    assert not ended["by_oom_kill"]
    assert ended["status"] == (-status if status < 0 else status << 8)
    assert ended["live_objects"] >= 100
    dumps = lab.dumps(puppet.target_pid)
    assert ended["dump"] == (dumps[0].path if dumps else "")
    for dump in dumps:
        assert dump.kind == "f"
        assert symbols.kept(dump.read()) == 100
    return status, len(dumps)


def test_signals_and_exits_by_default(lab, start_daemon):
    """A fatal signal leaves a dump, an exit does not, whatever its status."""
    daemon = start_daemon("--exact")
    for how, result in (("segv", (-signal.SIGSEGV, 1)), ("abort", (-signal.SIGABRT, 1)),
                        ("SIGKILL", (-signal.SIGKILL, 1)), (f"raise {int(signal.SIGTERM)}", (-signal.SIGTERM, 1)),
                        ("exit 0", (0, 0)), ("exit 1", (1, 0)), ("_exit 3", (3, 0))):
        assert end_of(lab, daemon, how) == result


def test_always(lab, start_daemon):
    daemon = start_daemon("--exact", "--dump-at-exit", "always")
    for how, result in (("exit 0", (0, 1)), ("_exit 1", (1, 1)), ("SIGKILL", (-signal.SIGKILL, 1))):
        assert end_of(lab, daemon, how) == result


def test_never(lab, start_daemon):
    daemon = start_daemon("--exact", "--dump-at-exit", "never")
    for how, result in (("exit 0", (0, 0)), ("abort", (-signal.SIGABRT, 0)), ("SIGKILL", (-signal.SIGKILL, 0))):
        assert end_of(lab, daemon, how) == result


def test_a_fatal_signal_before_the_first_sample(lab, start_daemon):
    """Nothing was sampled of a program that lives for a moment: it is among the ended ones, without a dump."""
    daemon = start_daemon("--lg-sample", "40")
    program = lab.preloaded("/bin/sh", "-c", "kill -9 $$", env={"MALLOC_CONF": "lg_prof_sample:40"})
    program.ends(-signal.SIGKILL)
    ended = wait_ended(daemon, program.pid)
    assert (ended["samples"], ended["live_objects"], ended["dump"]) == (0, 0, "")
    assert lab.dumps() == []
