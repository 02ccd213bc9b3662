# SPDX-License-Identifier: Apache-2.0
"""Local users at the socket: the kernel identifies them, and they can access only their own processes.

Each test also checks that others are still served.
"""

import contextlib
import grp
import json
import os
import re
import shutil
import socket
import struct
import subprocess

import pytest

from daemons import NOBODY, NOBODY_ID
from harness import PATIENCE_SECONDS, target, wait_until
from security import being, keeping_puppet, start_talking

DAEMON = ["--exact"]
PROFILING = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
OTHER_USER_ID = 65533
# Connections of one user; see userspace/http/limits.h.
CONNECTIONS_OF_USER = 8
# A request that never becomes complete.
HALF_A_REQUEST = b"GET /processes.json HTTP/1.1\r\nX: "


def answers(daemon, *requests, uid=NOBODY_ID, groups=()):
    """[(status, text)] for each (method, path) requested by a user."""
    with being(uid, groups):
        found = [daemon.request(method, path) for method, path in requests]
    return [(answer.status, answer.body.decode("latin-1")) for answer in found]


def overview(daemon, **user):
    """The PIDs that a user sees in /processes.json and in /metrics."""
    found = answers(daemon, ("GET", "/processes.json"), ("GET", "/metrics"), **user)
    assert [status for status, _ in found] == [200] * 2
    listed = {entry["pid"] for entry in json.loads(found[0][1])["processes"]}
    measured = {int(pid) for pid in re.findall(r'pid="(\d+)"', found[1][1])}
    return listed, measured


def test_users_have_their_own_processes_only(lab, daemon):
    """One page, one order and one page that changes something; unit tests check that all endpoints use the same access
    control."""
    roots = keeping_puppet(lab, env=PROFILING)
    users = keeping_puppet(lab, env=PROFILING, **NOBODY)
    for process in (roots, users):
        daemon.wait_recorded(process.pid)
    assert overview(daemon) == ({users.pid},) * 2
    assert {roots.pid, users.pid} <= overview(daemon, uid=0)[0]

    def requests(pid):
        return (("GET", f"/pid/{pid}/heap"), ("POST", f"/pid/{pid}/dump"),
                ("GET", f"/pid/{pid}/mtev/heap_profile?active=false"))
    before = sorted(os.listdir(daemon.state_folder))
    theirs, none = answers(daemon, *requests(roots.pid)), answers(daemon, *requests(4194303))
    # For other processes, the answers are the same as for nonexistent ones.
    assert [(status, body.replace(str(roots.pid), "4194303")) for status, body in theirs] == none
    assert [status for status, _ in none] == [404] * 3
    assert sorted(os.listdir(daemon.state_folder)) == before
    assert roots.ask("read bool prof.active") == "0 true"

    assert [status for status, _ in answers(daemon, *requests(users.pid))] == [200] * 3
    assert users.ask("read bool prof.active") == "0 false"
    ((status, body),) = answers(daemon, ("POST", "/dump"))
    assert status == 200
    assert [entry["pid"] for entry in json.loads(body)["dumps"]] == [users.pid]


def test_members_of_the_group_have_all(lab, start_daemon):
    group = grp.getgrgid(1)
    daemon = start_daemon("--exact", "--group", group.gr_name)
    roots = keeping_puppet(lab)
    daemon.wait_recorded(roots.pid)
    assert overview(daemon) == (set(), set())
    for pids in overview(daemon, groups=[group.gr_gid]):
        assert roots.pid in pids
    ((status, _),) = answers(daemon, ("POST", f"/pid/{roots.pid}/dump"), groups=[group.gr_gid])
    assert status == 200


def test_who_has_no_processes_is_told_so(lab, daemon):
    """A table of nothing says nothing, and root's processes are there."""
    daemon.wait_recorded(keeping_puppet(lab, env=PROFILING).pid)
    for command, words in (("list", "heaptap: the daemon records no process of yours"),
                           ("history", "heaptap: there is no history of your processes yet")):
        session = lab.heaptap(command, "--socket", daemon.socket, **NOBODY)
        session.records = False
        session.ends()
        assert session.lines() == [words]


def copy_of_hostile(lab, name):
    path = lab.path(name)
    shutil.copy(target("hostile"), path)
    os.chmod(path, 0o755)
    return path


def test_programs_with_more_rights_are_not_the_users(lab, daemon):
    """A user who may not inspect a process by other means may not do it through the daemon."""
    setuid = copy_of_hostile(lab, "setuid")
    os.chmod(setuid, 0o4755)
    capable = copy_of_hostile(lab, "capable")
    # struct vfs_cap_data, revision 2: CAP_NET_RAW, permitted and effective (linux/capability.h).
    os.setxattr(capable, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    secret = copy_of_hostile(lab, "secret")
    os.chmod(secret, 0o711)
    plain = copy_of_hostile(lab, "plain")
    liars = [start_talking(lab, path, **NOBODY) for path in (setuid, capable, secret, plain)]
    for process in liars:
        # Wait until the collector has seen the file.
        wait_until(lambda process=process: process.ask("sample 3") and process.pid in daemon.processes(),
                   f"{process.command} is recorded")
    *privileged, users = liars
    # A process that was root's and still has its old memory.
    former = keeping_puppet(lab)
    assert former.ask(f"uid {NOBODY_ID}") == f"uid {NOBODY_ID}"
    privileged.append(former)
    for process in (*privileged, users):
        daemon.wait_recorded(process.pid)
    assert overview(daemon) == ({users.pid},) * 2


def status_of(daemon, uid):
    """The status of /healthz. A user with too many connections gets an answer before the request is sent."""
    with being(uid), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(daemon.socket)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize("other", (0, OTHER_USER_ID), ids=["root", "another user"])
def test_one_user_cannot_take_all_connections(daemon, other):
    """A user with the maximum of connections gets no more, and other users are served."""
    def others_are_served():
        with contextlib.ExitStack() as stack:
            with being(NOBODY_ID):
                for _ in range(CONNECTIONS_OF_USER):
                    connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                    connection.connect(daemon.socket)
                    connection.sendall(HALF_A_REQUEST)
            # Unfinished requests end after some seconds, which would invalidate the result.
            before, served, after = (status_of(daemon, uid) for uid in (NOBODY_ID, other, NOBODY_ID))
            assert served == 200
            return before == after == 503
    wait_until(others_are_served, "he has all that he may have, and no more")
    wait_until(lambda: status_of(daemon, NOBODY_ID) == 200, "he may have some again")


def test_ended_processes(lab, daemon):
    """Users see their own ended processes, and no others'."""
    roots, users = keeping_puppet(lab), keeping_puppet(lab, **NOBODY)
    for process in (roots, users):
        daemon.wait_recorded(process.pid)
        process.ends()
    for process in (roots, users):
        daemon.wait_ended(process.pid)
    ((status, body),) = answers(daemon, ("GET", "/ended.json"))
    assert status == 200
    pids = {entry["pid"] for entry in json.loads(body)["ended"]}
    assert users.pid in pids
    assert roots.pid not in pids


@pytest.mark.parametrize("mode", (0o644, 0o600), ids=["for all", "for root"])
def test_names_from_debug_files(lab, daemon, mode):
    """Any user can forge a build-id, so only debug files that all users may read give names."""
    program = lab.path("stripped")
    identifier = os.urandom(20).hex()
    debug = f"/usr/lib/debug/.build-id/{identifier[:2]}/{identifier[2:]}.debug"
    os.makedirs(os.path.dirname(debug), exist_ok=True)
    note = lab.path("note")
    with open(note, "wb") as file:
        # Elf64_Nhdr: sizes of name and description, NT_GNU_BUILD_ID; then both.
        file.write(struct.pack("<III4s20s", 4, 20, 3, b"GNU\0", bytes.fromhex(identifier)))
    whole = lab.path("whole")
    subprocess.run(["objcopy", "--update-section", f".note.gnu.build-id={note}", target("puppet"), whole], check=True)
    subprocess.run(["objcopy", "--strip-all", whole, program], check=True)
    try:
        subprocess.run(["objcopy", "--only-keep-debug", whole, debug], check=True)
        os.chmod(debug, mode)
        process = lab.preloaded(program, talks=True, env=PROFILING, **NOBODY)
        process.answer()
        process.ask("keep 10 1000")
        daemon.wait_recorded(process.pid)
        ((status, body),) = answers(daemon, ("GET", f"/pid/{process.pid}/collapsed"))
        assert status == 200
        assert ("keep_blocks" in body) == (mode == 0o644), body
    finally:
        os.unlink(debug)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(debug))
