# SPDX-License-Identifier: Apache-2.0
"""Daemons that are restricted to control groups and to files: what is outside has no books, sends no events and pays
nothing, and several such daemons run side by side.

Recording is exact. Error bounds: none.
"""

import contextlib
import os
import shutil
import signal

import pytest

import control
from daemons import EXACT, Daemon
from harness import LIBRARY, PLACE, Session, target, wait_until
from lab import assert_one_clear_line

BLOCKS = 50


@pytest.fixture
def new_group():
    """Makes control groups of version 2 in that of this place, by the paths of their folders."""
    made = []

    def make(name):
        made.append(os.path.join(PLACE.group, name))
        os.mkdir(made[-1])
        return made[-1]
    yield make
    for folder in reversed(made):
        if os.path.exists(folder):
            with open(os.path.join(folder, "cgroup.kill"), "w", encoding="ascii") as file:
                file.write("1")
            wait_until(lambda folder=folder: removed(folder), f"{folder} is empty")


def removed(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


def inside(folder):
    """For a child that has not called exec yet."""
    def enter():
        with open(os.path.join(folder, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write("0")
    return enter


def in_group(lab, folder, **options):
    return lab.preloaded_puppet(preexec_fn=inside(folder), env=EXACT, **options)


def puppet_with(lab, library):
    return lab.puppet(env={**EXACT, "LD_PRELOAD": library})


def counted(daemon, puppet):
    """The samples of a recorded process that allocates BLOCKS blocks."""
    before = daemon.wait_recorded(puppet.target_pid)["samples"]
    puppet.ask(f"churn {BLOCKS} 100")
    return daemon.processes()[puppet.target_pid]["samples"] - before


def test_only_processes_of_the_group(lab, new_daemon, new_group):
    wanted, other = new_group("wanted"), new_group("other")
    daemon = new_daemon("--exact", "--cgroup", wanted, everyone=True, losses_allowed=("beginning",))
    ran_before = [in_group(lab, wanted), in_group(lab, other)]
    daemon.start()
    started_later = [in_group(lab, wanted), in_group(lab, other)]
    for puppet in (ran_before[0], started_later[0]):
        assert counted(daemon, puppet) == BLOCKS
    for puppet in (ran_before[1], started_later[1], lab.preloaded_puppet(env=EXACT)):
        puppet.ask(f"churn {BLOCKS} 100")
    below = in_group(lab, new_group("wanted/below"))
    assert counted(daemon, below) == BLOCKS
    listed = daemon.processes()
    assert {pid: entry["losses"] for pid, entry in listed.items()} == {
        ran_before[0].target_pid: {"beginning": 1}, started_later[0].target_pid: {}, below.target_pid: {}}


def test_daemons_side_by_side(lab, new_daemon, new_group):
    """One library, and a daemon for each group, with different rates."""
    groups = [new_group("first"), new_group("second")]
    daemons = [new_daemon("--exact", "--cgroup", groups[0], everyone=True),
               new_daemon("--lg-sample", 20, "--budget", 0, "--cgroup", groups[1], everyone=True)]
    for daemon in daemons:
        daemon.start()
    # A process asks for dumps if it has the option.
    puppets = [lab.preloaded_puppet(preexec_fn=inside(group), env={"MALLOC_CONF": "prof:true"}) for group in groups]
    for daemon, puppet, rate in zip(daemons, puppets, (0, 20)):
        assert daemon.wait_recorded(puppet.target_pid)["lg_sample"] == rate
        assert set(daemon.processes()) == {puppet.target_pid}
    # A dump that a process asks for comes from its own daemon.
    for daemon, puppet in zip(daemons, puppets):
        path = lab.path(f"asked.{puppet.target_pid}")
        assert puppet.ask(f"write string prof.dump {path}") == "0"
        assert os.path.getsize(path) > 0
    daemons[0].end()
    assert set(daemons[1].processes()) == {puppets[1].target_pid}


def test_rules_within_the_group(lab, new_daemon, new_group):
    wanted = new_group("wanted")
    daemon = new_daemon("--lg-sample", 20, "--budget", 0, "--cgroup", wanted, "--rule",
                        f"cgroup=*/{os.path.basename(PLACE.group)}/wanted comm=loud exact", everyone=True)
    daemon.start()
    for name, rate in (("loud", 0), ("quiet", 20)):
        puppet = lab.preloaded_puppet(name, preexec_fn=inside(wanted))
        wait_until(lambda puppet=puppet, rate=rate: daemon.processes().get(puppet.target_pid, {}).get("lg_sample") == rate,
                   f"{name} is sampled every 2^{rate} bytes")


def test_a_group_that_is_made_again(lab, new_daemon, new_group):
    """As a service manager does when a service starts again. The first time, the group is still missing."""
    folder = os.path.join(PLACE.group, "service")
    daemon = new_daemon("--exact", "--cgroup", folder, everyone=True, losses_allowed=("beginning",))
    daemon.start()
    daemon.wait_said(rf"^heaptap: there is no control group {folder} yet; waiting for it$")
    for _ in range(3):
        assert new_group("service") == folder
        puppet = in_group(lab, folder)
        assert counted(daemon, puppet) == BLOCKS
        puppet.ends()
        wait_until(lambda: removed(folder), "the group is empty")


def test_a_process_that_leaves_the_group(lab, new_daemon, new_group):
    """It stays recorded until its next exec. Its books end as at any exec."""
    wanted, other = new_group("wanted"), new_group("other")
    daemon = new_daemon("--exact", "--cgroup", wanted, everyone=True)
    daemon.start()
    puppet = in_group(lab, wanted)
    assert counted(daemon, puppet) == BLOCKS
    with open(os.path.join(other, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write(str(puppet.target_pid))
    assert counted(daemon, puppet) == BLOCKS
    puppet.tell("exec /usr/bin/cat")
    wait_until(lambda: puppet.target_pid not in daemon.processes(), "its books are closed")


def test_the_end_of_a_recording_leaves_other_processes_alone(lab, new_daemon, new_group):
    """heaptap daemon --end knows no groups. A process outside of them starts while it takes over, with a library that it has
    not seen yet."""
    other = lab.path("other.so")
    shutil.copy(LIBRARY, other)
    wanted = new_group("wanted")
    daemon = new_daemon("--exact", "--cgroup", wanted, everyone=True)
    daemon.start()
    assert counted(daemon, in_group(lab, wanted)) == BLOCKS
    daemon.stop()
    env = {"LD_PRELOAD": target("libstop_at.so"), "STOP_AT": "opendir:/recording"}
    end = Session(daemon.command("--end"), daemon.folder, env=env)
    os.waitid(os.P_PID, end.pid, os.WSTOPPED | os.WNOWAIT)
    puppet = puppet_with(lab, other)
    end.signal(signal.SIGCONT)
    end.wait_said("^heaptap: the recording has ended$")
    assert control.control(puppet.target_pid, other).collector_pid == 0
    assert control.follows(puppet.target_pid, other) == 0


def test_only_one_library(lab, new_daemon):
    """Another copy of the library gets no probes, so a process that maps it never traps."""
    mine, other = lab.path("mine.so"), lab.path("other.so")
    for copy in (mine, other):
        shutil.copy(LIBRARY, copy)
    daemon = new_daemon("--exact", "--only-library", mine)
    daemon.start()
    puppets = {path: puppet_with(lab, path) for path in (other, LIBRARY, mine)}
    assert counted(daemon, puppets[mine]) == BLOCKS
    for puppet in puppets.values():
        puppet.ask(f"churn {BLOCKS} 100")
    assert set(daemon.processes()) == {puppets[mine].target_pid}
    for path, puppet in puppets.items():
        assert any(control.semaphores(puppet.target_pid, path).values()) == (path == mine), path


def test_the_next_daemon_has_another_library(lab, new_daemon):
    """What an earlier daemon attached to, and this one shall not, loses its probes."""
    mine, other = lab.path("mine.so"), lab.path("other.so")
    for copy in (mine, other):
        shutil.copy(LIBRARY, copy)
    daemon = new_daemon("--exact")
    daemon.start("--only-library", other)
    puppet = puppet_with(lab, other)
    assert counted(daemon, puppet) == BLOCKS
    daemon.stop()
    daemon.start("--only-library", mine)
    wait_until(lambda: not any(control.semaphores(puppet.target_pid, other).values()), "the probes are removed")
    assert counted(daemon, puppet_with(lab, mine)) == BLOCKS


@pytest.mark.parametrize("argument, status, said", [
    ("--cgroup=/tmp", 2, "--cgroup /tmp: it is no control group; expected the folder of a control group"),
    ("--cgroup=slice", 2, "--cgroup slice: it is no path from the root; expected"),
    ("--cgroup=/nowhere", 2, "--cgroup /nowhere: No such file or directory; expected"),
    ("--only-library=/bin/true", 2, "/bin/true contains no sampled allocator"),
    ("--only-library=/nowhere.so", 3, "/nowhere.so")])
def test_a_restriction_to_something_else(lab, argument, status, said):
    assert_one_clear_line(Daemon(lab.folder, argument, everyone=True).launch(), status, said)
