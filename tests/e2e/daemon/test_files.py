# SPDX-License-Identifier: Apache-2.0
"""Only root can read the daemon's files; the daemon refuses folders that others can write to.
"""

import os
import stat

import pytest

from daemons import Daemon
from harness import wait_until
from lab import assert_one_clear_line
from security import keeping_puppet

NOBODY = 65534
FAILURE = 1  # userspace/cli/words/exit_status.h


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_what_it_writes_is_roots_alone(lab, start_daemon):
    daemon = start_daemon("--exact", "--dump-at-exit", "always", umask=0)
    puppet = keeping_puppet(lab)
    daemon.wait_recorded(puppet.pid)
    daemon.request("POST", f"/pid/{puppet.pid}/dump")
    states = os.path.join(daemon.state_folder, "recording")
    wait_until(lambda: "json" in " ".join(os.listdir(states)), "the state of the process is saved")
    assert mode(daemon.state_folder) == 0o700
    assert mode(states) == 0o700
    for name in filter(lambda name: name.endswith(".json"), os.listdir(states)):
        assert mode(os.path.join(states, name)) & 0o077 == 0, name
    puppet.ends()
    daemon.wait_dumps(2, pid=puppet.pid)
    assert [mode(dump.path) for dump in daemon.dumps(puppet.pid)] == [0o600] * 2


@pytest.mark.parametrize("make", (lambda path: os.chmod(path, 0o777), lambda path: os.chown(path, NOBODY, NOBODY)),
                         ids=["for all to write", "nobody's"])
def test_folders_of_others_are_refused(lab, make):
    daemon = Daemon(lab.folder)
    os.mkdir(daemon.state_folder, 0o700)
    make(daemon.state_folder)
    collector = daemon.launch()
    collector.ends(1)
    assert "must be a folder that belongs to root" in collector.stderr()
    assert os.listdir(daemon.state_folder) == []


def test_pins_in_no_bpf_file_system(lab):
    """The daemon refuses it, and mounts nothing over the folder."""
    configuration = lab.path("heaptap.conf")
    with open(configuration, "w", encoding="ascii"):
        pass
    for parent in (lab.folder, lab.path("absent")):
        session = lab.heaptap("daemon", "--config", configuration, "--pin-dir", os.path.join(parent, "pins"),
                              "--state-dir", lab.path("state"), "--socket", lab.path("socket"))
        assert_one_clear_line(session, FAILURE, "is not on a BPF file system", "--pin-dir|pins")
    assert not os.path.ismount(lab.folder)
    assert not os.path.exists(lab.path("pins"))
