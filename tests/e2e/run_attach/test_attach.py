# SPDX-License-Identifier: Apache-2.0
"""heaptap attach: records a process that was started with only the preload, and restores it.

A thread notices that sampling is on when its ready blocks are used up. So the first blocks after attaching may be
missing, at most READY_BLOCKS.
"""

import math
import os
import re
import signal

import control
from attached_probes import linked_programs, loaded
from container import Container, Image
from harness import LIBRARY, PATIENCE_SECONDS, target, wait_until
from lab import READY_BLOCKS, assert_one_clear_line
from symbols import kept


def test_leaves_the_process_as_it_found_it(lab):
    puppet = lab.preloaded_puppet()
    pid = puppet.target_pid
    before = control.control(pid, LIBRARY)
    assert before.collector_lg_sample == control.NO_RATE
    assert set(control.semaphores(pid, LIBRARY).values()) == {0}
    session = lab.attach(pid, "--exact")
    during = control.control(pid, LIBRARY)
    assert during.collector_lg_sample == 0
    assert control.semaphores(pid, LIBRARY)["otel_memory:alloc"] > 0
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGINT)
    session.ends()
    assert control.control(pid, LIBRARY) == before
    assert set(control.semaphores(pid, LIBRARY).values()) == {0}
    assert puppet.ask("keep 10 100") == "kept 10"
    dump = lab.only_dump(pid, "f")
    assert 40000 - READY_BLOCKS <= kept(dump) <= 40000
    puppet.ends()


def test_by_name(lab):
    puppet = lab.preloaded_puppet("only_puppet")
    session = lab.heaptap("attach", "only_puppet", "--exact")
    session.wait_said(rf"^heaptap: attached to {puppet.pid} \(only_puppet\)")
    puppet.ask("keep 10000 100")
    session.signal(signal.SIGINT)
    session.ends()
    assert kept(lab.only_dump(puppet.pid, "f")) >= 10000 - READY_BLOCKS
    puppet.ends()


def test_twice_one_after_the_other(lab):
    """The second session starts with empty books and sees only later allocations."""
    puppet = lab.preloaded_puppet()
    for _ in range(2):
        session = lab.attach(puppet.target_pid, "--exact", "-o", f"session{len(lab.sessions)}")
        puppet.ask("keep 30000 100")
        puppet.ask("churn 30000 100")
        session.signal(signal.SIGTERM)
        session.ends()
        dump = lab.dumps()[-1].read()
        assert 30000 - READY_BLOCKS <= kept(dump) <= 30000
    assert len(lab.dumps()) == 2


def test_two_at_the_same_time(lab):
    """A second heaptap on the same process refuses and names the first, which goes on."""
    puppet = lab.preloaded_puppet()
    first = lab.attach(puppet.target_pid, "--exact")
    second = lab.heaptap("attach", "-p", puppet.target_pid, "--exact", "-o", "second", "-d", "1")
    assert_one_clear_line(
        second, 1, rf"process {puppet.target_pid} .* is already recorded by another heaptap \(process {first.pid}\)")
    puppet.ask("keep 40000 100")
    first.signal(signal.SIGINT)
    first.ends()
    assert kept(lab.only_dump()) >= 40000 - READY_BLOCKS


def test_for_some_seconds(lab):
    """-d 1: heaptap ends on its own with a final dump; the target goes on."""
    puppet = lab.preloaded_puppet()
    session = lab.attach(puppet.target_pid, "-d", "1")
    puppet.ask("keep 100 100")
    session.ends()
    lab.only_dump(puppet.target_pid, "f")
    puppet.ends()


def test_what_is_older_is_neither_growth_nor_a_share(lab):
    """The report of a process that was attached to says since when, and divides nothing by all of its memory."""
    puppet = lab.preloaded_puppet()
    puppet.ask("keep 40000 1000")
    session = lab.attach(puppet.target_pid, "--exact", "--report", "always")
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGINT)
    session.ends()
    shown = session.stderr()
    assert re.search(r"\n  resident   \d+\.\dM\n  since      the recording began, \d+s ago; what is older is not known\n"
                     r"\nwho holds most of what was allocated since then", shown), shown
    assert "This is not growth" in shown and "heaptap diff" in shown
    told = lab.answer_of("report", lab.dumps()[0].path)
    assert "\n  since      the recording began; what is older is not known\n" in told


def test_sigusr1(lab):
    puppet = lab.preloaded_puppet()
    session = lab.attach(puppet.target_pid, "--exact")
    for number in range(2):
        puppet.ask("keep 20000 100")
        session.signal(signal.SIGUSR1)
        session.wait_said(rf"^heaptap: wrote .*\.{number}\.m{number}\.heap: \d+ bytes in \d+ objects live")
    session.signal(signal.SIGTERM)
    session.ends()
    assert [dump.kind for dump in lab.dumps()] == ["m", "m", "f"]


def test_the_target_ends(lab):
    puppet = lab.preloaded_puppet()
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 30000 100")
    os.kill(puppet.target_pid, signal.SIGKILL)
    session.ends()
    dump = lab.only_dump(puppet.target_pid, "f")
    assert dump.total.objects >= 30000 - READY_BLOCKS


def test_killed_heaptap_leaves_the_target_running(lab):
    """kill -9 of heaptap: the target neither ends nor waits, and another attach works."""
    puppet = lab.preloaded_puppet()
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 30000 100")
    programs = linked_programs(session.pid)
    assert loaded(programs) == programs != set()
    session.signal(signal.SIGKILL)
    session.wait()
    assert puppet.ask("churn 100000 100") == "churned 100000"
    # However long the kernel takes: only the limit of a test ends this wait.
    wait_until(lambda: not loaded(programs), "the kernel has removed the probes", math.inf)
    # Kernels without links to many probes remove some with the last reference to a perf event, a moment later.
    wait_until(lambda: set(control.semaphores(puppet.target_pid, LIBRARY).values()) == {0}, "semaphores are zero")
    again = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 40000 100")
    again.signal(signal.SIGTERM)
    again.ends()
    assert lab.only_dump().total.objects >= 40000 - READY_BLOCKS
    puppet.ends()


def test_killed_heaptap_run_leaves_the_command_running(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 1000 100")
    session.signal(signal.SIGKILL)
    assert session.popen.wait(PATIENCE_SECONDS) == -signal.SIGKILL, session.stderr()
    assert session.ask("churn 100000 100") == "churned 100000"


def test_a_process_that_gave_up_its_privileges(lab):
    """The target changes to the user `nobody`, before or during the recording; heaptap, as root, continues to record it."""
    puppet = lab.preloaded_puppet()
    assert puppet.ask("uid 65534") == "uid 65534"
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGTERM)
    session.ends()
    assert lab.only_dump().total.objects >= 40000 - READY_BLOCKS


def test_run_a_process_that_gives_up_its_privileges(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 100")
    assert session.ask("uid 65534") == "uid 65534"
    session.ask("keep 100 100")
    session.ends()
    assert kept(lab.only_dump()) == 200


def test_a_library_on_layers_of_two_file_systems(lab, request):
    """overlayfs shows other numbers of such a file to stat(2) than in /proc/PID/maps: a live system, a container in memory."""
    container = Container(Image(lab.path("image")), lab.path("container"), own_file_system=True)
    request.addfinalizer(container.remove)
    puppet = lab.program(target("puppet"), env={"LD_PRELOAD": f"{container.root}/libheaptap.so"}, talks=True)
    assert puppet.answer() == f"ready {puppet.pid}"
    session = lab.attach(puppet.pid, "--exact")
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGINT)
    session.ends()
    assert 40000 - READY_BLOCKS <= kept(lab.only_dump(puppet.pid, "f")) <= 40000
    puppet.ends()
