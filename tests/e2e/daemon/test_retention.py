# SPDX-License-Identifier: Apache-2.0
"""How many dumps are kept: by number, bytes and age, from the configuration and after SIGHUP."""

import os

import pytest

from daemons import EXACT
from harness import wait_until

DAEMON = ["--exact"]


@pytest.fixture
def dump_times(lab, daemon):
    """dump_times(N) writes N dumps of a process, one after the other."""
    puppet = lab.preloaded_puppet(env=EXACT)
    daemon.wait_recorded(puppet.pid)

    def dump(times):
        for _ in range(times):
            daemon.client("dump", puppet.pid)
    return dump


def sequences(daemon):
    return [dump.sequence for dump in daemon.dumps()]


def test_number(daemon, dump_times):
    """The newest stay."""
    daemon.reload("max-files=3")
    dump_times(5)
    wait_until(lambda: len(daemon.dumps()) == 3, "three are left")
    assert sequences(daemon) == [2, 3, 4]


def test_bytes(daemon, dump_times):
    daemon.reload()
    dump_times(1)
    (dump,) = daemon.dumps()
    daemon.reload(f"max-bytes={os.stat(dump.path).st_size * 5 // 2}")
    dump_times(4)
    wait_until(lambda: len(daemon.dumps()) == 2, "two are left")
    assert sequences(daemon) == [3, 4]


def test_age(daemon, dump_times):
    """Old dumps except the newest are removed even without a new one; other files stay."""
    daemon.reload("max-age=1s")
    stranger = os.path.join(daemon.state_folder, "notes.txt")
    with open(stranger, "w", encoding="ascii"):
        os.utime(stranger, (0, 0))
    dump_times(3)
    wait_until(lambda: sequences(daemon) == [2], "the older ones are gone")
    assert os.path.exists(stranger)


def test_reload(daemon, dump_times):
    """New bounds remove dumps."""
    daemon.reload()
    dump_times(4)
    assert sequences(daemon) == [0, 1, 2, 3]
    daemon.reload("max-files=1")
    wait_until(lambda: len(daemon.dumps()) == 1, "one is left")
    assert sequences(daemon) == [3]
