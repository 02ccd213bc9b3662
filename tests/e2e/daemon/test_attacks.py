# SPDX-License-Identifier: Apache-2.0
"""Ordinary users attack a daemon with the rights and limits of its systemd unit, each with a real program.

Under each attack the daemon answers others in time and does not grow, and the profile of an innocent process stays
exact. The measurements are in build/e2e/hostile.txt.
"""

import contextlib
import os
import re
import signal
import socket
import stat
import struct
import sys
import threading

import pytest

import hostile_elf
from attacks import INNOCENT, INNOCENT_ID, Mount, Service, demand, start_hostile
from daemons import NOBODY_ID
from harness import LONG, wait_until
from security import being

# Answers are timed.
pytestmark = pytest.mark.whole_machine


@pytest.fixture
def attackers(start_daemon):
    """Attackers that end before the daemon does, each with its children: a process that waits for a file system ends
    only after the server of that file system."""
    added = []

    def add(process):
        added.append(process)
        return process
    yield add
    for process in added:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.popen.wait()


@pytest.fixture
def fuse():
    """Users may mount file systems: udev gives this mode to the device on Debian."""
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    yield
    os.chmod("/dev/fuse", mode)


@pytest.fixture
def start_service(lab, new_cgroup, start_daemon):
    def start(**options):
        service = Service(lab, start_daemon, new_cgroup(limit=Service.limit()), **options)
        service.measure_quiet()
        return service
    return start


def test_nothing(start_service):
    """The harness itself: two measurements in peace."""
    start_service().hold("none")


def recorded(service, process):
    """Waits until a hostile target is recorded. The collector sees the file of the first one late."""
    wait_until(lambda: process.ask("sample 1") and process.pid in service.daemon.listed(), "it is recorded")
    return process


# Requests pages without end over all connections that a user may have.
HTTP_FLOOD = """
import contextlib, http.client, itertools, os, socket, sys

path, method, *pages = sys.argv[1:]
for first in range(7):
    if os.fork() == 0:
        break
print("ready", os.getpid(), flush=True)
pages = itertools.cycle(pages[first:] + pages[:first])
while True:
    with contextlib.suppress(OSError, http.client.HTTPException), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        while True:
            connection.sendall(f"{method} {next(pages)} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            answer.read()
"""


def stall_an_exec(lab, service, attackers):
    """An exec closes files while the kernel holds a lock that is needed to open /proc/PID/mem. This close waits for the
    server of the file system, which never answers."""
    mount = Mount(lab, "mount", "flush")
    process = recorded(service, attackers(mount.process))
    process.ask("start valid")
    process.ask(f"stall {mount.path(0)}")
    wait_until(mount.waiting, "the exec waits")
    return process


def test_exec_that_never_ends(lab, fuse, start_service, attackers):
    """The attacker gives orders about the stalled process."""
    service = start_service()
    process = stall_an_exec(lab, service, attackers)
    with being(NOBODY_ID), contextlib.suppress(OSError):
        service.daemon.request("POST", f"/pid/{process.pid}/active?value=off", seconds=1)
    service.hold("exec that never ends")


def test_start_beside_an_exec_that_never_ends(lab, fuse, start_service, attackers):
    service = start_service()
    stall_an_exec(lab, service, attackers)
    service.hold_restart("start beside an exec that never ends")


def ask_for_dumps_that_stall(lab, service, attackers):
    """Whoever copies a descriptor of the attacker's file has to close the copy, which waits for the file system's
    server."""
    mounts = [Mount(lab, f"mount{number}", "flush") for number in range(4)]
    for mount in mounts:
        recorded(service, attackers(mount.process))
    for mount in mounts:
        mount.process.tell(f"request 60 {mount.path(0)}")
    for mount in mounts:
        mount.process.answer()
    # The daemon writes only a few dumps of one user at a time.
    assert any(mount.waiting() > 0 for mount in mounts)


def test_dumps_into_a_file_system_that_stalls(lab, fuse, start_service, attackers):
    service = start_service()
    ask_for_dumps_that_stall(lab, service, attackers)
    service.hold("dumps into a file system that stalls")


def test_start_beside_dumps_that_stall(lab, fuse, start_service, attackers):
    service = start_service()
    ask_for_dumps_that_stall(lab, service, attackers)
    service.hold_restart("start beside dumps that stall")


def busy(process, order):
    """Gives a long order. Returns whether it is done, for Service.hold()."""
    def answer():
        with contextlib.suppress(AssertionError):  # it was killed
            process.answer()
    process.tell(order)
    thread = threading.Thread(target=answer)
    thread.start()
    return lambda: not thread.is_alive()


MIB = 1 << 20
FORKS = 1000 if LONG else 300
# HEAPTAP_DUMP_MANUAL, in heaptap/contract.h.
MANUAL = ord("m")


@pytest.fixture
def file_of_user(lab):
    """Makes a file that belongs to the attacker."""
    def make(write, *arguments):
        path = lab.path(write.__name__)
        write(path, *arguments)
        os.chown(path, NOBODY_ID, NOBODY_ID)
        return path
    return make


def test_sparse_frames(lab, start_service, attackers, file_of_user):
    """256 MiB of unwind tables in 4 KiB on disk, another version each time."""
    service = start_service()
    process = recorded(service, attackers(start_hostile(lab)))
    path = file_of_user(hostile_elf.write_frames, 256 * MIB)
    service.hold("sparse unwind tables", busy(process, f"remap 2000 {path}"))


def test_many_rows_at_many_places(lab, start_service, attackers, file_of_user):
    """Two million rows for each of two thousand places of a file."""
    service = start_service()
    process = recorded(service, attackers(start_hostile(lab)))
    path = file_of_user(hostile_elf.write_rows, 2 * MIB, 2000)
    service.hold("two million rows at two thousand places", busy(process, f"remap 2 {path}"))


def test_many_symbols(lab, start_service, attackers, file_of_user):
    """New files with probes, each with 512 MiB of symbols."""
    service = start_service()
    process = attackers(start_hostile(lab))
    path = file_of_user(hostile_elf.write_symbols, 512 * MIB)
    service.hold("512 MiB of symbols", busy(process, f"breed 20 {path}"))


def test_many_notes(lab, start_service, attackers, file_of_user):
    """New files, each with 16 MiB of notes."""
    service = start_service()
    process = attackers(start_hostile(lab))
    path = file_of_user(hostile_elf.write_notes, 16 * MIB - 4096)
    service.hold("16 MiB of notes", busy(process, f"breed 100 {path}"))


def test_many_address_spaces(lab, start_service, attackers):
    """A process with 8,000 mappings of code forks hundreds of children, each of which maps one more."""
    service = start_service()
    process = attackers(start_hostile(lab))
    service.hold(f"{FORKS} forks with 8,000 mappings", busy(process, f"spaces 8000 {FORKS}"))


@pytest.fixture
def freezer(request):
    """Freezes a process: its user may have a control group of its own."""
    def freeze(pid):
        version_1 = "/sys/fs/cgroup/freezer"
        folder = os.path.join(version_1 if os.path.exists(version_1) else "/sys/fs/cgroup", f"heaptap-test-{pid}")
        state, frozen, thawed = (("freezer.state", "FROZEN", "THAWED") if os.path.exists(version_1) else
                                 ("cgroup.freeze", "1", "0"))

        def write(name, value):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(value)

        def is_gone():
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            return not os.path.exists(folder)

        def thaw():
            write(state, thawed)
            os.kill(pid, signal.SIGKILL)
            wait_until(is_gone, "the group is empty")
        os.mkdir(folder)
        write("cgroup.procs", str(pid))
        write(state, frozen)
        request.addfinalizer(thaw)
    return freeze


def test_frozen_processes(lab, start_service, attackers, freezer):
    """Processes are frozen while they wait for a dump. Their user gives orders about them and wants profiles."""
    service = start_service()
    processes = [recorded(service, attackers(start_hostile(lab))) for _ in range(4)]
    for process in processes:
        process.ask("start valid")
        process.tell("request 60 file")
        freezer(process.pid)
    pages = [f"/pid/{process.pid}/{page}" for process in processes for page in ("active?value=off", "dump")]
    attackers(start_hostile(lab, sys.executable, "-c", HTTP_FLOOD, service.daemon.socket, "POST", *pages))
    service.hold("frozen processes")


def test_text_of_a_note(lab, start_service, attackers, file_of_user):
    """The arguments of a probe hold a line of their own and an escape sequence of a terminal."""
    service = start_service()
    process = attackers(start_hostile(lab))
    process.ask(f"breed 1 {file_of_user(hostile_elf.write_allocator, chr(10) + 'heaptap: a lie' + chr(27) + '[2J')}")
    line = service.daemon.wait_said(r"^heaptap: .* passes its arguments as .*$").group()
    assert line.isprintable()
    assert "heaptap: a lie" not in service.daemon.process.lines()
    service.hold("terminal escapes in a note")


def test_control_blocks_that_stall(lab, fuse, start_service, attackers):
    """The user gives orders about 30 processes whose control blocks cannot be read, over all connections."""
    service = start_service()
    mount = Mount(lab, "mount", "read")
    attackers(mount.process)
    process = attackers(start_hostile(lab))
    recorded(service, process)
    pids = [int(word) for word in process.ask(f"hide 30 {mount.seen_by_others(0)}").split()[1:]]
    pages = [f"/pid/{pid}/active?value=off" for pid in pids]
    attackers(start_hostile(lab, sys.executable, "-c", HTTP_FLOOD, service.daemon.socket, "POST", *pages))
    service.hold("control blocks that stall")


def test_dump_into_a_file_of_a_setuid_program(lab, fuse, start_service, attackers):
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
    mount = Mount(lab, "mount", "read")
    attackers(mount.process)
    process = recorded(service, attackers(start_hostile(lab)))
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


PATH_BITS = 14


def recorded_with_many_paths(lab, service, attackers):
    process = recorded(service, attackers(start_hostile(lab)))
    process.ask(f"paths {PATH_BITS}")
    return process


@pytest.mark.slow
def test_flood_of_dump_requests(lab, start_service, attackers):
    """Four processes with sixteen thousand call paths each ask for dumps every 5 ms."""
    service = start_service()
    processes = [recorded_with_many_paths(lab, service, attackers) for _ in range(4)]
    over = [busy(process, "request 400 file") for process in processes]
    service.hold("flood of dump requests", lambda: all(is_over() for is_over in over))


@pytest.mark.slow
@pytest.mark.parametrize("page", ("heap", "debug/pprof/heap", "allocator.json", "resident.json"))
def test_flood_of_http_requests(lab, start_service, attackers, page):
    service = start_service()
    process = recorded_with_many_paths(lab, service, attackers)
    attackers(start_hostile(lab, sys.executable, "-c", HTTP_FLOOD, service.daemon.socket, "GET",
                            f"/pid/{process.pid}/{page}"))
    service.hold(f"flood of GET {page}")


def test_dumps_into_memory(lab, start_service, attackers):
    """The process keeps the files, so their memory must be its own."""
    service = start_service()
    process = recorded_with_many_paths(lab, service, attackers)
    service.hold("dumps into memory", busy(process, "request 60 memory"))


# Of subordinate user ids (subuid(5)) one user has 65,536 on Debian.
SUBORDINATE_IDS = range(100000, 100008)
OF_NOBODY = f"{NOBODY_ID}:{SUBORDINATE_IDS[0]}:65536\n"
FILES_OF_ID = 32
CONNECTIONS_OF_ID = 8


def map_files(lab, process, uids, count=FILES_OF_ID, write=hostile_elf.write_allocator):
    """The process maps new files of each of the users."""
    for uid in uids:
        for number in range(count):
            path = lab.path(f"allocator.{uid}.{number}")
            write(path)
            os.chown(path, uid, uid)
            process.ask(f"map_file {path}")


def test_probes_that_the_kernel_refuses(lab, start_service, attackers):
    service = start_service()
    process = attackers(start_hostile(lab))
    map_files(lab, process, [NOBODY_ID], 100, hostile_elf.write_refused_allocator)
    service.hold("files whose probes the kernel refuses")


def test_probe_files_of_a_user(lab, start_service, attackers):
    """Probes are attached to all files that one user may have."""
    service = start_service()
    process = attackers(start_hostile(lab))
    map_files(lab, process, SUBORDINATE_IDS[:1])
    service.hold("files with probes of one user id")


def test_probe_files_of_subordinate_users(lab, start_service, attackers):
    """A user takes all places for files with probes; another user's file must still get its probes."""
    service = start_service(subordinate_ids=OF_NOBODY)
    process = attackers(start_hostile(lab))
    map_files(lab, process, SUBORDINATE_IDS)
    path = lab.copy("hostile", "others")
    os.chown(path, INNOCENT_ID, INNOCENT_ID)
    others = start_hostile(lab, path, **INNOCENT)
    service.hold_recorded("files with probes of eight user ids", others)


def test_connections_of_subordinate_users(start_service):
    """A user takes all connections; other users must still get one."""
    service = start_service(subordinate_ids=OF_NOBODY)
    with contextlib.ExitStack() as stack:
        for uid in SUBORDINATE_IDS:
            with being(uid):
                for _ in range(CONNECTIONS_OF_ID):
                    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                    connection.connect(service.daemon.socket)
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        connection.sendall(b"GET /processes.json HTTP/1.1\r\nX: ")
        service.hold("connections of eight user ids")


def test_what_the_main_thread_opens(lab, start_service, attackers):
    """Whatever belongs to a process or a user is opened by other processes of the daemon, because it may wait."""
    service = start_service()
    daemon = service.daemon
    opened = lab.path("opened")
    tracer = attackers(lab.program("strace", "-e", "trace=open,openat,openat2", "-o", opened, "-p", daemon.process.pid))
    tracer.wait_said("attached")
    process = recorded(service, attackers(start_hostile(lab)))
    process.ask("start valid")
    map_files(lab, process, [NOBODY_ID], 1)
    daemon.client("active", process.pid, "off")
    service.innocent.own_dump()
    daemon.get(f"/pid/{process.pid}/debug/pprof/heap")
    tracer.signal(signal.SIGINT)
    tracer.wait()
    with open(opened, encoding="utf-8") as file:
        paths = set(re.findall(r'"(/[^"]*)"', file.read()))
    foreign = sorted(path for path in paths if re.match(r"/proc/\d|/tmp/", path) and not path.startswith(daemon.folder))
    demand(not foreign, f"the main thread opens {foreign[:5]}")
