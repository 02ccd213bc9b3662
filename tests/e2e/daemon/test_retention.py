# SPDX-License-Identifier: Apache-2.0
"""What makes the daemon write dumps while processes live, and which of them stay.

Recording is exact; error bounds: none.
"""

import os
import signal

from daemon import EXACT
from harness import wait_until


def dump_times(daemon, times):
    done = daemon.process.stderr().count("heaptap: wrote ")
    for number in range(times):
        daemon.process.signal(signal.SIGUSR1)
        daemon.wait_said("^heaptap: wrote ", count=done + number + 1)


def test_number(lab, start_daemon):
    """The newest stay."""
    daemon = start_daemon("--exact", "--max-files", "3")
    start_puppets(lab, daemon)
    dump_times(daemon, 5)
    wait_until(lambda: len(lab.dumps()) == 3, "three are left")
    assert [dump.sequence for dump in lab.dumps()] == [2, 3, 4]


def test_bytes(lab, start_daemon):
    daemon = start_daemon("--exact")
    start_puppets(lab, daemon)
    dump_times(daemon, 1)
    (dump,) = lab.dumps()
    size = os.stat(dump.path).st_size
    daemon.stop()
    daemon.start("--max-bytes", size * 5 // 2)
    dump_times(daemon, 4)
    wait_until(lambda: len(lab.dumps()) == 2, "two are left")


def test_age(lab, start_daemon):
    """Old dumps go although no new one comes, all but the last; what is not ours stays."""
    daemon = start_daemon("--exact", "--max-age", "2s")
    start_puppets(lab, daemon)
    stranger = os.path.join(daemon.state_folder, "notes.txt")
    with open(stranger, "w", encoding="ascii"):
        os.utime(stranger, (0, 0))
    dump_times(daemon, 2)
    assert len(lab.dumps()) == 2
    wait_until(lambda: len(lab.dumps()) < 2, "the old one is gone")
    assert [dump.sequence for dump in lab.dumps()] == [1]
    assert os.path.exists(stranger)


def test_reload(lab, start_daemon):
    """SIGHUP changes the bounds, and what is beyond them goes."""
    daemon = start_daemon("--exact")
    start_puppets(lab, daemon)
    dump_times(daemon, 4)
    with open(daemon.configuration, "w", encoding="ascii") as file:
        file.write("max-files=1\n")
    daemon.process.signal(signal.SIGHUP)
    daemon.wait_said("read the configuration again")
    wait_until(lambda: len(lab.dumps()) == 1, "one is left")


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
