# SPDX-License-Identifier: Apache-2.0
"""Local users at the socket: who connects is who the kernel says, and has his own processes only.

Each test also sees that somebody else is served as before.
"""

import contextlib
import grp
import json
import os
import re
import shutil
import signal
import socket

from harness import target, wait_until
from security import assert_prompt, keeping_puppet, recorded, start_talking

NOBODY = 65534
ALL_PAGES = ("mtev/memory.json", "mtev/heap_profile", "pprof/heap", "pprof/growth", "pprof/symbol",
             "pprof/cmdline", "debug/pprof/heap", "debug/pprof/allocs", "debug/pprof/cmdline",
             "debug/pprof/symbol", "heap", "collapsed", "jeprof", "allocator.json")
DEEDS = ("dump", "active?value=off", "rate?lg=20")


def as_user(daemon, requests, uid=NOBODY, groups=()):
    """The answers, [status, body], to [method, path] of a child that has become that user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups(list(groups))
            os.setgid(NOBODY)
            os.setuid(uid)
            answers = [daemon.request(method, path) for method, path in requests]
            text = json.dumps([[answer.status, answer.body.decode("latin-1")] for answer in answers])
            with os.fdopen(writer, "w", encoding="ascii") as file:
                file.write(text)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, encoding="ascii") as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def user_puppet(lab, **options):
    return keeping_puppet(lab, user=NOBODY, group=NOBODY, extra_groups=[], **options)


def overview(daemon, **user):
    """PIDs in /processes.json, of processes in /metrics and on the index page."""
    answers = as_user(daemon, [["GET", "/processes.json"], ["GET", "/metrics"], ["GET", "/"]], **user)
    for status, _ in answers:
        assert status == 200
    listed = {entry["pid"] for entry in json.loads(answers[0][1])["processes"]}
    measured = {int(pid) for pid in re.findall(r'pid="(\d+)"', answers[1][1])}
    linked = {int(pid) for pid in re.findall(r"/pid/(\d+)/", answers[2][1])}
    return listed, measured, linked


def test_users_have_their_own_processes_only(lab, start_daemon):
    daemon = start_daemon("--exact")
    profiling = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}
    roots = keeping_puppet(lab, env=profiling)
    users = user_puppet(lab, env=profiling)
    for process in (roots, users):
        recorded(daemon, process)
    assert overview(daemon) == ({users.pid},) * 3
    assert {roots.pid, users.pid} <= overview(daemon, uid=0)[0]

    before = sorted(os.listdir(daemon.state_folder))
    foreign = [["GET", f"/pid/{roots.pid}/{page}"] for page in ALL_PAGES]
    foreign += [["GET", f"/{page}?pid={roots.pid}"] for page in ("mtev/memory.json", "pprof/heap")]
    foreign += [["POST", f"/pid/{roots.pid}/{deed}"] for deed in DEEDS]
    foreign += [["GET", f"/pid/{roots.pid}/mtev/heap_profile?{what}"]
                for what in ("active=false", "trigger_dump=true")]
    nobodys = [[method, path.replace(str(roots.pid), "4194303")] for method, path in foreign]
    # What is not the user's is as if it were not there, to the word.
    for (method, path), theirs, none in zip(foreign, as_user(daemon, foreign), as_user(daemon, nobodys)):
        assert theirs[0] == 404, f"{method} {path}"
        assert theirs[1].replace(str(roots.pid), "4194303") == none[1], path
    assert sorted(os.listdir(daemon.state_folder)) == before
    assert roots.ask("is prof.active") == "mallctl 0 1"

    own = [["GET", f"/pid/{users.pid}/{page}"] for page in ALL_PAGES]
    own += [["POST", f"/pid/{users.pid}/{deed}"] for deed in DEEDS]
    for (method, path), answer in zip(own, as_user(daemon, own)):
        assert answer[0] == 200, f"{method} {path}: {answer[1]}"
    assert users.ask("is prof.active") == "mallctl 0 0"

    ((status, body),) = as_user(daemon, [["POST", "/dump"]])
    assert status == 200
    assert [entry["pid"] for entry in json.loads(body)["dumps"]] == [users.pid]


def test_members_of_the_group_have_all(lab, start_daemon):
    group = grp.getgrgid(1)
    daemon = start_daemon("--exact", "--group", group.gr_name)
    roots = keeping_puppet(lab)
    recorded(daemon, roots)
    assert overview(daemon) == (set(), set(), set())
    for pids in overview(daemon, groups=[group.gr_gid]):
        assert roots.pid in pids
    ((status, _),) = as_user(daemon, [["POST", f"/pid/{roots.pid}/dump"]], groups=[group.gr_gid])
    assert status == 200


def copy_of_hostile(lab, name):
    path = lab.path(name)
    shutil.copy(target("hostile"), path)
    os.chmod(path, 0o755)
    return path


def test_programs_with_more_rights_are_not_the_users(lab, start_daemon):
    """Whoever may not look into a process by other means may not by this one."""
    daemon = start_daemon("--exact")
    setuid = copy_of_hostile(lab, "setuid")
    os.chmod(setuid, 0o4755)
    capable = copy_of_hostile(lab, "capable")
    # struct vfs_cap_data, revision 2: CAP_NET_RAW, permitted and effective (linux/capability.h).
    os.setxattr(capable, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    secret = copy_of_hostile(lab, "secret")
    os.chmod(secret, 0o711)
    plain = copy_of_hostile(lab, "plain")
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    liars = [start_talking(lab, path, **user) for path in (setuid, capable, secret, plain)]
    for process in liars:
        # Until the collector has seen the file.
        wait_until(lambda: process.ask("sample 3") and process.pid in daemon.processes(), f"{process.command}")
    *privileged, users = liars
    # One that was root's, and has all that it had in its memory.
    former = keeping_puppet(lab)
    assert former.ask(f"uid {NOBODY}") == f"uid {NOBODY}"
    privileged.append(former)
    for process in (*privileged, users):
        recorded(daemon, process)
    assert overview(daemon) == ({users.pid},) * 3


def test_one_user_cannot_take_all_connections(lab, start_daemon):
    daemon = start_daemon("--exact")
    puppet = keeping_puppet(lab)
    recorded(daemon, puppet)
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            connections = []
            for _ in range(64):
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(daemon.socket)
                # Half a request, of those that are not sent away.
                with contextlib.suppress(OSError):
                    connection.send(b"GET /processes.json HTTP/1.1\r\nX: ")
                connections.append(connection)
            os.write(writer, b".")
            signal.pause()
        finally:
            os._exit(1)
    assert os.read(reader, 1) == b"."
    assert_prompt(daemon)
    assert puppet.pid in daemon.processes()
