# SPDX-License-Identifier: Apache-2.0
"""Ordinary users attack a daemon with the rights and limits of its systemd unit, each with a real program (lib/attacks.py).

Under each attack the daemon answers others and does not grow, and the profile of an innocent process stays exact
(lib/attack_service.py). HEAPTAP_LONG=1 also judges times. The measurements are in build/e2e/hostile.txt.
"""

import os
import re
import signal
import struct

import pytest

import attacks
import hostile_elf
from attack_service import Service, demand
from attackers import fuse_for_users
from attacks import CONNECTIONS_OF_USER, FORKS, LOOPS, MANUAL, OF_NOBODY
from daemons import NOBODY_ID
from harness import wait_until

# With HEAPTAP_LONG=1, answers are timed.
pytestmark = [pytest.mark.whole_machine, pytest.mark.endurance]


@pytest.fixture(autouse=True)
def fuse():
    with fuse_for_users():
        yield


@pytest.fixture
def start_service(lab, new_cgroup, start_daemon, held):
    made = []

    def start(*arguments, **options):
        made.append(Service(lab, start_daemon, new_cgroup(limit=Service.limit()), *arguments, held=held, **options))
        return made[-1]
    yield start
    for service in made:
        service.close()


def hold(service, name, attack):
    service.hold(name, attack(service.attackers) or (lambda: True))


def test_nothing(start_service):
    """The harness itself: two measurements in peace."""
    start_service(loops=0).hold("none")


# --- file systems that wait ---


def test_exec_that_never_ends(start_service):
    hold(start_service(), "exec that never ends", attacks.exec_that_never_ends)


def test_start_beside_an_exec_that_never_ends(start_service):
    start_service().hold_restart("start beside an exec that never ends", attacks.exec_that_never_ends)


def test_dumps_into_a_file_system_that_stalls(start_service):
    hold(start_service(), "dumps into a file system that stalls", attacks.dumps_that_stall)


def test_start_beside_dumps_that_stall(start_service):
    start_service().hold_restart("start beside dumps that stall", attacks.dumps_that_stall)


def test_control_blocks_that_stall(start_service):
    hold(start_service(), "control blocks that stall", attacks.control_blocks_that_stall)


def test_slow_control_blocks(start_service):
    # A hundred processes use one processor together, now here and now there.
    hold(start_service(loops=2), "control blocks that are slow", attacks.slow_control_blocks)


def test_start_beside_slow_control_blocks(start_service):
    start_service().hold_restart("start beside control blocks that are slow", attacks.slow_control_blocks)


def test_dump_into_a_file_of_a_setuid_program(lab, start_service):
    """A process asks for a dump and executes a set-user-ID program while the collector reads the request, which lies in
    a file whose server lets it wait. The old memory stays because the process shares it with its parent, but the
    descriptors are those of the new program."""
    service = start_service()
    precious = lab.path("precious")
    with open(precious, "w", encoding="ascii") as file:
        file.write("precious")
    os.chmod(precious, 0o600)
    victim = lab.copy("hostile_victim", "victim")
    os.chmod(victim, 0o4755)
    mount = service.attackers.mount("read")
    process = service.attackers.recorded(service.attackers.hostile())
    process.tell(f"become {victim} {precious} {mount.seen_by_others(0)}")
    # The collector waits for the page that the process itself is reading.
    wait_until(mount.waiting, "the request is being read")
    process.tell("ask")
    wait_until(service.waits_for_a_page, "the collector reads the request too")
    process.tell("execute")
    assert process.answer() == "open 3"
    # struct heaptap_dump_request (heaptap/contract.h): sequence 1, a manual dump into descriptor 3, eventfd 0.
    mount.answer_reads(struct.pack("<QQIiii", 1, 0, MANUAL, 3, 0, 0))
    service.daemon.wait_said("now runs another program")
    with open(precious, encoding="ascii") as file:
        assert file.read() == "precious"
    service.hold("dump into a setuid program's file")


# --- files ---


def test_sparse_frames(start_service):
    hold(start_service(), "sparse unwind tables", attacks.sparse_frames)


def test_many_rows_at_many_places(start_service):
    hold(start_service(), "two million rows at two thousand places", attacks.many_rows_at_many_places)


def test_many_symbols(start_service):
    hold(start_service(), "512 MiB of symbols", attacks.many_symbols)


def test_many_notes(start_service):
    hold(start_service(), "16 MiB of notes", attacks.many_notes)


def test_heavy_files_of_another_user(start_service):
    hold(start_service(), "heavy files of a third user", attacks.heavy_files_of_another_user)


def test_text_of_a_note(start_service):
    service = start_service()
    attacks.lying_note(service.attackers)
    line = service.daemon.wait_said(r"^heaptap: .* passes its arguments as .*$").group()
    assert line.isprintable()
    assert "heaptap: a lie" not in service.daemon.process.lines()
    service.hold("terminal escapes in a note")


def test_probes_that_the_kernel_refuses(start_service):
    hold(start_service(), "files whose probes the kernel refuses", attacks.probes_that_the_kernel_refuses)


def test_probe_files_of_a_user(start_service):
    hold(start_service(), "files with probes of one user id", attacks.probe_files_of_a_user)


def test_probe_files_of_subordinate_users(start_service):
    """Another user's file must still get its probes."""
    hold(start_service(subordinate_ids=OF_NOBODY), "files with probes of eight user ids",
         attacks.probe_files_of_subordinate_users)


# --- mappings and processes ---


def test_many_address_spaces(start_service):
    hold(start_service(), f"{FORKS} forks with 8,000 mappings", attacks.many_address_spaces)


def test_many_mapped_files(start_service):
    hold(start_service(), "many mapped files", attacks.many_mapped_files)


def test_start_beside_many_mapped_files(start_service):
    start_service().hold_restart("start beside many mapped files", attacks.many_mapped_files)


def test_new_code_without_end(start_service):
    hold(start_service(loops=LOOPS), "new code without end", attacks.new_code_without_end)


def test_storm_of_forks(start_service):
    hold(start_service(loops=LOOPS), "forks that sample once", attacks.storm_of_forks)


def test_start_beside_a_storm_of_forks(start_service):
    start_service().hold_restart("start beside forks that sample once", attacks.storm_of_forks)


def test_sleepers(start_service):
    hold(start_service(loops=0), "thousands of sleeping processes", attacks.sleepers)


def test_start_beside_sleepers(start_service):
    start_service().hold_restart("start beside thousands of sleeping processes", attacks.sleepers)


def test_frozen_processes(start_service):
    hold(start_service(), "frozen processes", attacks.frozen_processes)


# --- questions ---


@pytest.mark.slow
def test_flood_of_dump_requests(start_service):
    hold(start_service(loops=LOOPS), "flood of dump requests", attacks.flood_of_dump_requests)


@pytest.mark.slow
@pytest.mark.parametrize("page", ("heap", "debug/pprof/heap", "allocator.json", "resident.json"))
def test_flood_of_http_requests(start_service, page):
    hold(start_service(loops=CONNECTIONS_OF_USER - 1), f"flood of GET {page}", attacks.flood_of_http_requests(page))


def test_list_of_root_beside_dear_profiles(start_service):
    """The profiles of a user take the user's whole account, again and again."""
    hold(start_service(loops=CONNECTIONS_OF_USER - 1, root_lists=True), "root's list beside dear profiles",
         attacks.flood_of_http_requests("heap"))


def test_dumps_into_memory(start_service):
    hold(start_service(), "dumps into memory", attacks.dumps_into_memory)


def test_connections_of_subordinate_users(start_service):
    hold(start_service(subordinate_ids=OF_NOBODY, loops=0), "connections of eight user ids",
         attacks.connections_of_subordinate_users)


def test_connections_by_socket_and_tcp(start_service):
    hold(start_service("--listen", "127.0.0.1:0", loops=0), "connections by socket and TCP",
         attacks.connections_by_socket_and_tcp)


def test_what_the_main_thread_opens(lab, start_service):
    """Whatever belongs to a process or a user is opened by other processes of the daemon, because it may wait."""
    service = start_service()
    daemon, attackers = service.daemon, service.attackers
    opened = lab.path("opened")
    tracer = attackers.add(lab.program("strace", "-e", "trace=open,openat,openat2", "-o", opened, "-p", daemon.process.pid))
    tracer.wait_said("attached")
    process = attackers.recorded(attackers.hostile())
    process.ask("start valid")
    attackers.map_files(process, [NOBODY_ID], 1, hostile_elf.write_allocator)
    daemon.client("active", process.pid, "off")
    with service.alone() as innocent:
        innocent.own_dump()
    daemon.get(f"/pid/{process.pid}/debug/pprof/heap")
    tracer.signal(signal.SIGINT)
    tracer.wait()
    with open(opened, encoding="utf-8") as file:
        paths = set(re.findall(r'"(/[^"]*)"', file.read()))
    own = (daemon.folder, f"/proc/{daemon.process.pid}/")
    foreign = sorted(path for path in paths if re.match(r"/proc/\d|/tmp/", path) and not path.startswith(own))
    demand(not foreign, f"the main thread opens {foreign[:5]}")
