# SPDX-License-Identifier: Apache-2.0
"""Attacks of ordinary users on a daemon, each with a real program.

Each function begins an attack, which lasts until attackers.end(), and returns a function that says whether all of it has
been done; None: it never ends by itself. ALL are those that may follow one another, in any order.
"""

import contextlib
import sys

import hostile_elf
from daemons import NOBODY_ID
from harness import LONG, target, wait_until
from security import being

MIB = 1 << 20
# HEAPTAP_DUMP_MANUAL, in heaptap/contract.h.
MANUAL = ord("m")
PATH_BITS = 14

# Of subordinate user ids (subuid(5)) one user has 65,536 on Debian.
SUBORDINATE_IDS = range(100000, 100008)
OF_NOBODY = f"{NOBODY_ID}:{SUBORDINATE_IDS[0]}:65536\n"
# Neither the attacker's nor root's: "sys".
OTHER_ID = 3
FILES_OF_ID = 32

# Scaled to what two processors and 8 GB bear. HEAPTAP_LONG=1: as many as showed the worst.
FORKS = 1000 if LONG else 300
SLEEPERS = 5000 if LONG else 1000
KEPT_PROCESSES, KEPT_FILES = (5, 60000) if LONG else (1, 20000)
HEAVY_FILES = 100 if LONG else 30
# Each control block costs its reader 180 ms.
LENT_BLOCKS = 100
LOOPS = 4
CONNECTIONS_OF_USER, CONNECTIONS_BY_TCP = 8, 16


# --- file systems that wait ---


def exec_that_never_ends(attackers):
    """An exec closes files while the kernel holds a lock that is needed to open /proc/PID/mem. This close waits for the
    server of the file system, which never answers. The attacker gives orders about the process."""
    mount = attackers.mount("flush")
    process = attackers.recorded(mount.process)
    process.ask("start valid")
    process.ask(f"stall {mount.path(0)}")
    wait_until(mount.waiting, "the exec waits")
    with being(NOBODY_ID), contextlib.suppress(OSError):
        attackers.daemon.request("POST", f"/pid/{process.pid}/active?value=off", seconds=1)


def dumps_that_stall(attackers):
    """Whoever copies a descriptor of the attacker's file has to close the copy, which waits for the file system's
    server."""
    mounts = [attackers.mount("flush") for _ in range(4)]
    for mount in mounts:
        attackers.recorded(mount.process)
    for mount in mounts:
        mount.process.tell(f"request 60 {mount.path(0)}")
    for mount in mounts:
        mount.process.answer()
    # The daemon writes only a few dumps of one user at a time.
    wait_until(lambda: any(mount.waiting() > 0 for mount in mounts), "a dump waits")


def control_blocks_that_stall(attackers):
    """The user gives orders about 30 processes whose control blocks cannot be read, over all connections."""
    mount = attackers.mount("read")
    process = attackers.recorded(attackers.hostile())
    pids = [int(word) for word in process.ask(f"hide 30 {mount.seen_by_others(0)}").split()[1:]]
    flood(attackers, "POST", *(f"/pid/{pid}/active?value=off" for pid in pids))


def slow_control_blocks(attackers):
    """No single answer of the file system is late, but there are many."""
    mount = attackers.mount("slow", program="crowd", by_root=True)
    attackers.recorded(mount.process).ask(f"lend {LENT_BLOCKS} {mount.folder}")


# --- files ---


def sparse_frames(attackers):
    """256 MiB of unwind tables in 4 KiB on disk, another version each time."""
    process = attackers.recorded(attackers.hostile())
    return attackers.busy(process, f"remap 2000 {attackers.file(hostile_elf.write_frames, 256 * MIB)}")


def many_rows_at_many_places(attackers):
    """Two million rows for each of two thousand places of a file."""
    process = attackers.recorded(attackers.hostile())
    return attackers.busy(process, f"remap 2 {attackers.file(hostile_elf.write_rows, 2 * MIB, 2000)}")


def many_symbols(attackers):
    """New files with probes, each with 512 MiB of symbols."""
    return attackers.busy(attackers.hostile(), f"breed 20 {attackers.file(hostile_elf.write_symbols, 512 * MIB)}")


def many_notes(attackers):
    """New files, each with 16 MiB of notes."""
    return attackers.busy(attackers.hostile(), f"breed 100 {attackers.file(hostile_elf.write_notes, 16 * MIB - 4096)}")


def heavy_files_of_another_user(attackers):
    """As many_rows_at_many_places(), but the files belong to a third user, whose account is not the attacker's."""
    process = attackers.recorded(attackers.hostile())
    attackers.map_files(process, [OTHER_ID], HEAVY_FILES, hostile_elf.write_rows, 2 * MIB, 2000)


def probes_that_the_kernel_refuses(attackers):
    attackers.map_files(attackers.hostile(), [NOBODY_ID], 100, hostile_elf.write_refused_allocator)


def probe_files_of_a_user(attackers):
    """Probes are attached to all files that one user may have."""
    attackers.map_files(attackers.hostile(), SUBORDINATE_IDS[:1], FILES_OF_ID, hostile_elf.write_allocator)


def probe_files_of_subordinate_users(attackers):
    """A user takes all places for files with probes."""
    attackers.map_files(attackers.hostile(), SUBORDINATE_IDS, FILES_OF_ID, hostile_elf.write_allocator)


def lying_note(attackers):
    """The arguments of a probe hold a line of their own and an escape sequence of a terminal."""
    path = attackers.file(hostile_elf.write_allocator, chr(10) + "heaptap: a lie" + chr(27) + "[2J")
    attackers.hostile().ask(f"breed 1 {path}")


# --- mappings and processes ---


def many_address_spaces(attackers):
    """A process with 8,000 mappings of code forks hundreds of children, each of which maps one more."""
    return attackers.busy(attackers.hostile(), f"spaces 8000 {FORKS}")


def new_code_without_end(attackers):
    """Processes that nobody records map new files as code."""
    attackers.hostile(target("mappings"), "churn", LOOPS)


def many_mapped_files(attackers):
    """Processes that nobody records keep tens of thousands of files mapped as code."""
    attackers.hostile(target("mappings"), "keep", KEPT_PROCESSES, KEPT_FILES)


def storm_of_forks(attackers):
    """Each child fires one probe and ends."""
    attackers.recorded(attackers.hostile(target("crowd"))).ask(f"storm {LOOPS}")


def sleepers(attackers):
    """Thousands of recorded processes that do nothing."""
    attackers.recorded(attackers.hostile(target("crowd"))).ask(f"sleep {SLEEPERS}")


def frozen_processes(attackers):
    """Processes are frozen while they wait for a dump. Their user gives orders about them and wants profiles."""
    processes = [attackers.recorded(attackers.hostile()) for _ in range(4)]
    for process in processes:
        process.ask("start valid")
        process.tell("request 60 file")
        attackers.freeze(process)
    flood(attackers, "POST", *(f"/pid/{process.pid}/{page}" for process in processes
                               for page in ("active?value=off", "dump")))


# --- questions ---

# Requests pages without end over so many connections at once.
_FLOOD = """
import contextlib, http.client, itertools, os, socket, sys

connections, path, method, *pages = sys.argv[1:]
for first in range(int(connections)):
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

# Takes all connections that it can get over a Unix socket and over TCP, and keeps them with a request before they are
# idle for too long. A connection that was lost is opened anew.
_HOLD = """
import itertools, socket, sys, time

path, port, by_socket, by_tcp = sys.argv[1], *map(int, sys.argv[2:])
places = [(socket.AF_UNIX, path)] * by_socket + [(socket.AF_INET, ("127.0.0.1", port))] * by_tcp
held = [None] * len(places)
for turn in itertools.count():
    for number, (family, address) in enumerate(places):
        try:
            if held[number] is None:
                held[number] = socket.socket(family)
                held[number].settimeout(1)
                held[number].connect(address)
            held[number].sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
            if not held[number].recv(65536):
                raise OSError
        except OSError:
            held[number].close()
            held[number] = None
    if turn == 0:
        print("ready", 0, flush=True)
    time.sleep(1)
"""

# Begins a request over so many connections and does not end it.
_UNFINISHED = """
import contextlib, socket, sys, time
held = []
for _ in range(int(sys.argv[2])):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        held[-1].sendall(b"GET /processes.json HTTP/1.1\\r\\nX: ")
print("ready", 0, flush=True)
while True:
    time.sleep(3600)
"""


def flood(attackers, method, *pages, connections=CONNECTIONS_OF_USER - 1):
    attackers.hostile(sys.executable, "-c", _FLOOD, connections, attackers.daemon.socket, method, *pages)


def with_many_paths(attackers, bits=PATH_BITS):
    process = attackers.recorded(attackers.hostile())
    process.ask(f"paths {bits}")
    return process


def flood_of_dump_requests(attackers):
    """Four processes with sixteen thousand call paths each ask for dumps every 5 ms."""
    processes = [with_many_paths(attackers) for _ in range(LOOPS)]
    over = [attackers.busy(process, "request 400 file") for process in processes]
    return lambda: all(is_over() for is_over in over)


def flood_of_http_requests(page, bits=PATH_BITS):
    def attack(attackers):
        flood(attackers, "GET", f"/pid/{with_many_paths(attackers, bits).pid}/{page}")
    attack.__name__ = f"flood of GET {page}"
    return attack


def dumps_into_memory(attackers):
    """The process keeps the files, so their memory must be its own."""
    return attackers.busy(with_many_paths(attackers), "request 60 memory")


def connections_of_subordinate_users(attackers):
    """A user takes all connections of eight ids."""
    for uid in SUBORDINATE_IDS:
        attackers.hostile(sys.executable, "-c", _UNFINISHED, attackers.daemon.socket, CONNECTIONS_OF_USER, user=uid, group=uid)


def connections_by_socket_and_tcp(attackers):
    """A user takes all connections of the socket that one user may have, and all by TCP."""
    attackers.hostile(sys.executable, "-c", _HOLD, attackers.daemon.socket, attackers.tcp_port(), CONNECTIONS_OF_USER,
                      CONNECTIONS_BY_TCP)


# Numbers of call paths whose profile takes the whole account of its user.
EXPENSIVE_PATH_BITS = 16

ALL = (
    exec_that_never_ends, dumps_that_stall, control_blocks_that_stall, slow_control_blocks,
    sparse_frames, many_rows_at_many_places, many_symbols, many_notes, heavy_files_of_another_user,
    probes_that_the_kernel_refuses, probe_files_of_a_user, probe_files_of_subordinate_users, lying_note,
    many_address_spaces, new_code_without_end, many_mapped_files, storm_of_forks, sleepers, frozen_processes,
    flood_of_dump_requests, dumps_into_memory, connections_of_subordinate_users, connections_by_socket_and_tcp,
    flood_of_http_requests("heap", EXPENSIVE_PATH_BITS),
    *(flood_of_http_requests(page) for page in ("debug/pprof/heap", "allocator.json", "resident.json")),
)
