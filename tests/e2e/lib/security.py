# SPDX-License-Identifier: Apache-2.0
"""Attackers of a root daemon: a process that it records, a local user at its socket, an HTTP client.

Each test also checks that other processes and users are still served.
"""

import contextlib
import os
import re

from daemons import EXACT
from harness import target


@contextlib.contextmanager
def being(uid, groups=()):
    """Becomes another effective user: the kernel identifies the maker of a connection by it."""
    saved = os.getgroups()
    os.setgroups(list(groups))
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(saved)


def start_talking(lab, *command, **options):
    """Starts a program and waits until it is ready."""
    process = lab.program(*command, talks=True, **options)
    process.answer()
    return process


def keeping_puppet(lab, count=3, **options):
    """Starts a program with `count` blocks of 1000 bytes that the daemon records."""
    env = dict(EXACT, **options.pop("env", {}))
    process = lab.preloaded(target("puppet"), talks=True, env=env, **options)
    process.answer()
    process.ask(f"keep {count} 1000")
    return process


def start_hostile(lab, **options):
    return start_talking(lab, target("hostile"), **options)


def assert_answers(daemon):
    assert daemon.get("/healthz").body == b"ok\n"


def assert_serves(lab, daemon):
    """The collector is alive: it records and dumps a new process."""
    assert daemon.process.alive(), daemon.process.stderr()
    puppet = keeping_puppet(lab)
    daemon.wait_listed(puppet.pid)
    path = lab.path(f"served.{puppet.pid}")
    daemon.dump(puppet.pid, path)
    with open(path, encoding="ascii") as file:
        # After the lines about losses, if there are any.
        assert re.search(r"(?m)^heap_v2/", file.read())
    assert_answers(daemon)
    puppet.ends()
