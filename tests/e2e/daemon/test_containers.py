# SPDX-License-Identifier: Apache-2.0
"""Containers: file systems, PIDs and users that only the processes in them see.

Recording is exact; error bounds: none, except for the first process that maps a new library, whose samples before the
attachment of probes are missed. That is counted as a loss.
"""

import gzip
import itertools
import os
import re

import pytest

import symbols
from container import Container, Image
from harness import target, wait_until

DAEMON = ["--exact", "--dump-at-exit", "always"]
# Of the first process that maps a library.
LOSSES_ALLOWED = ("beginning",)
BEGINNING = {"beginning": 1}
# On a busy machine, the probes may be attached before its first allocation.
BEGINNINGS = ({}, BEGINNING)
# Blocks per second.
PACE = 20000


@pytest.fixture
def new_container(lab, request):
    """Makes containers of one image."""
    image = Image(lab.path("image"))
    numbers = itertools.count()

    def make(**options):
        container = Container(image, lab.path(f"container{next(numbers)}"), **options)
        request.addfinalizer(container.remove)
        return container
    return make


def own_library(container):
    """Writes to the library's file, so that the overlay makes a copy of the image's file."""
    with open(os.path.join(container.root, "libheaptap.so"), "ab") as file:
        file.write(b"\n")
    return container


def started_in(lab, container, **options):
    """Starts a puppet; target_pid is its PID on the host."""
    puppet = lab.program(*container.command("puppet", **options), talks=True)
    assert puppet.answer() == "ready 1"
    with open(f"/proc/{puppet.pid}/task/{puppet.pid}/children", encoding="ascii") as file:
        puppet.target_pid = int(file.read())
    return puppet


def puppet_in(lab, daemon, container, **options):
    """The same, and waits until it is recorded."""
    puppet = started_in(lab, container, **options)
    wait_until(lambda: puppet.target_pid in daemon.processes(), "it is recorded")
    return puppet


def paced_in(lab, daemon, container, is_first=False, **options):
    """(allocated blocks, recorded blocks) of a program that runs for about half a second."""
    seen = {entry["pid"] for entry in daemon.ended()}
    program = lab.program(*container.command("paced", PACE, 1, **options))
    program.ends()

    def find():
        return [entry for entry in daemon.ended() if entry["command"] == "paced" and entry["pid"] not in seen]
    (entry,) = wait_until(find, "it has ended")
    allocated, recorded = int(program.stdout().splitlines()[1].split()[1]), entry["samples"]
    # Without a loss nothing is missing.
    assert entry["losses"] == {} and recorded == allocated or entry["losses"] == BEGINNING and is_first
    return allocated, recorded


@pytest.mark.parametrize("own_file_system", (False, True))
def test_recorded_symbolised_and_dumped(lab, daemon, new_container, own_file_system):
    puppet = puppet_in(lab, daemon, new_container(own_file_system=own_file_system))
    pid = puppet.target_pid
    puppet.ask("keep 100 1000")
    entry = daemon.processes()[pid]
    assert (entry["live_objects"], entry["command"]) == (100, "puppet")
    assert entry["losses"] in BEGINNINGS
    collapsed = daemon.get(f"/pid/{pid}/collapsed")
    assert collapsed.status == 200
    assert re.search(r"(?m);main;obey;keep_blocks(;\S+)? 102400$", collapsed.body.decode())
    profile = daemon.get(f"/pid/{pid}/debug/pprof/heap")
    assert b"keep_blocks" in gzip.decompress(profile.body)
    by_hand = lab.path("by_hand")
    daemon.dump(pid, by_hand)
    assert os.stat(by_hand).st_size > 0
    puppet.ends()
    daemon.wait_ended(pid)
    dump = daemon.only_dump(pid, "f")
    copies = {mapping.path: target("puppet") for mapping in dump.mappings if mapping.path.endswith("/puppet")}
    kept = [stack for stack in dump.stacks if "keep_blocks" in symbols.names(dump, stack, copies)]
    assert sum(stack.total.objects for stack in kept) == 100


def test_the_second_process_is_exact(lab, daemon, new_container):
    """The first process that maps the library is recorded as soon as the collector has heard of the mapping; the next one
    from its start."""
    container = new_container()
    # The probes are removed some time after the last process.
    puppet = started_in(lab, container)
    daemon.settle()
    puppet.ask("keep 100 1000")
    entry = daemon.processes()[puppet.target_pid]
    assert (entry["samples"], entry["live_objects"]) == (100, 100)
    assert entry["losses"] in BEGINNINGS
    for _ in range(2):
        allocated, recorded = paced_in(lab, daemon, container)
        assert allocated == recorded


def test_one_file_in_two_containers(lab, daemon, new_container):
    """Two overlay file systems show the same file of the image: no sample counts twice."""
    puppets = [puppet_in(lab, daemon, new_container()) for _ in range(2)]
    for number, puppet in enumerate(puppets):
        puppet.ask(f"keep {100 + number} 100")
    own = own_library(new_container())
    puppets.append(puppet_in(lab, daemon, own))
    puppets[2].ask("keep 102 100")
    for number, puppet in enumerate(puppets):
        entry = daemon.processes()[puppet.target_pid]
        assert entry["losses"] in BEGINNINGS
        assert (entry["samples"], entry["live_objects"]) == (100 + number, 100 + number)
    # The next collector knows that, too.
    daemon.restart()
    third = puppet_in(lab, daemon, new_container())
    third.ask("keep 103 100")
    for number, puppet in enumerate([*puppets, third]):
        puppet.ask("keep 100 100")
        entry = daemon.processes()[puppet.target_pid]
        assert entry["samples"] == 200 + number


def test_a_file_system_can_go_when_its_processes_have_ended(lab, daemon, new_container):
    """A probe keeps its file's mount busy, so it is removed some time after the last process. Other processes lose nothing,
    and the next process is recorded again."""
    going, staying = own_library(new_container()), new_container()
    stays = puppet_in(lab, daemon, staying)
    allocated, recorded = paced_in(lab, daemon, going, is_first=True)
    assert 0 < recorded <= allocated
    wait_until(lambda: going.unmount() is None, "it can be unmounted")
    going.mount()
    assert paced_in(lab, daemon, going, is_first=True)[1] > 0
    stays.ask("keep 100 100")
    assert daemon.processes()[stays.target_pid]["samples"] == 100


@pytest.mark.slow
def test_a_file_system_of_this_mount_name_space_can_go(lab, daemon, new_container):
    """Without its own mount namespace, the container's mount is on the host. The same for a collector that has missed the
    mapping of the file."""
    going = own_library(new_container())
    assert paced_in(lab, daemon, going, is_first=True, name_spaces=())[1] > 0
    wait_until(lambda: going.unmount() is None, "it can be unmounted")
    going.mount()
    paced_in(lab, daemon, going, is_first=True, name_spaces=())
    daemon.restart()
    wait_until(lambda: going.unmount() is None, "it can be unmounted")
