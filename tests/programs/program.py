# SPDX-License-Identifier: Apache-2.0
"""The registry of the programs in this folder, and their common parts.

A program is a function(folder, start) as described in tests/e2e/lib/programs.py. @program(PACKAGE) adds it to the table
under its name, with its Debian package. If its result has a key "status", the value must be 0.
"""

import hashlib
import math
import os
import re
import socket
import subprocess
from typing import Callable, NamedTuple

from harness import environment, wait_until
from programs import LIMIT_SECONDS, finish

# Debian's programs, whatever the caller's PATH is.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

# {name: Program}, in the order of the table.
PROGRAMS = {}


class Program(NamedTuple):
    """`package`: alternatives are separated by |, as in scripts/bootstrap. `since`: the first release of Debian that has it.
    `not_over`: {host of guests.HOSTS: why the program does not run over it, without heaptap too}."""
    package: str
    function: Callable
    since: int
    not_over: dict

    def installed(self):
        """The package that is installed, with its version; the names if there is none."""
        known = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Package} ${Version}\n",
                                *self.package.split("|")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               check=False).stdout
        found = re.search("^installed (.*)", known, re.MULTILINE)
        return found.group(1) if found else self.package

    def absent(self, host="glibc"):
        """Why it cannot run here over a host, or None."""
        return f"Debian {release()} has no {self.package}" if release() < self.since else self.not_over.get(host)


def release():
    """The number of this release of Debian; infinity of one that has none yet."""
    with open("/etc/debian_version", encoding="ascii") as file:
        number = re.match(r"\d+", file.read())
    return int(number.group()) if number else math.inf


def program(package, name=None, since=12, not_over=None):
    def add(function):
        PROGRAMS[name or function.__name__] = Program(package, function, since, not_over or {})
        return function
    return add


def write(folder, name, text):
    """Writes a file to the program's folder; returns its path."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def digest(folder, name):
    if not os.path.exists(os.path.join(folder, name)):
        return "missing"
    with open(os.path.join(folder, name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def hidden(text, *patterns):
    """The text without parts that differ from run to run; removes whole lines where a pattern ends with a line's end."""
    for pattern in patterns:
        text = re.sub(pattern, "" if pattern.endswith(r"\n") else "#", text, flags=re.MULTILINE)
    return text


def outcome(process, folder=None, files=(), hide=()):
    """Status, output and files of a process that ends on its own."""
    result = finish(process)
    for stream in ("stdout", "stderr"):
        result[stream] = hidden(result[stream], *hide)
    result.update({name: digest(folder, name) for name in files})
    return result


def client(folder, *command, text=None):
    """The output of a program that is not under test, such as the client of a server."""
    done = subprocess.run(command, input=(text or "").encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd=folder, env=environment(folder, {"PATH": PATH}), timeout=LIMIT_SECONDS, check=False)
    return done.stdout.decode("utf-8", "replace")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(address):
    """Whether a server accepts connections on a Unix socket's path or a port of 127.0.0.1."""
    family, where = (socket.AF_UNIX, address) if isinstance(address, str) else (socket.AF_INET, ("127.0.0.1", address))
    with socket.socket(family) as one:
        return one.connect_ex(where) == 0


def wait_ready(process, condition):
    """Waits until a server answers; fails at once when it has ended."""
    wait_until(lambda: condition() or not process.alive(), f"{process} answers")
    if not process.alive():
        raise AssertionError(f"a server ended with {process.wait()}: {process.stderr()}")


def stop(process, signal=15, hide=()):
    """Ends a server. `ended` is not called `status`, because it may be the signal."""
    process.signal(signal)
    return {"ended": process.wait(LIMIT_SECONDS), "stdout": hidden(process.stdout(), *hide),
            "stderr": hidden(process.stderr(), *hide)}
