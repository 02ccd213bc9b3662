# SPDX-License-Identifier: Apache-2.0
"""What a program of this folder is, and what they have in common.

A program is a function(folder, start), as tests/e2e/lib/programs.py says it. @program(PACKAGE) puts it into the table
under its name, with the Debian package that it is from. A key "status" in what it returns has to be 0.
"""

import hashlib
import os
import re
import socket
import subprocess

from harness import environment, wait_until
from programs import LIMIT_SECONDS, finish

# Debian's programs, whatever else the caller has in PATH.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

# {name: (package, function)}, in the order of the table.
PROGRAMS = {}


def program(package, name=None):
    def add(function):
        PROGRAMS[name or function.__name__] = package, function
        return function
    return add


def write(folder, name, text):
    """A file of the program's folder; its path."""
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
    """The text without what differs from run to run; whole lines where a pattern ends one."""
    for pattern in patterns:
        text = re.sub(pattern, "" if pattern.endswith(r"\n") else "#", text, flags=re.MULTILINE)
    return text


def outcome(process, folder=None, files=(), hide=()):
    """Status, output and files of a process that ends by itself."""
    result = finish(process)
    for stream in ("stdout", "stderr"):
        result[stream] = hidden(result[stream], *hide)
    result.update({name: digest(folder, name) for name in files})
    return result


def client(folder, *command, text=None):
    """What a program prints that is not looked at, such as the client of a server."""
    done = subprocess.run(command, input=(text or "").encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          cwd=folder, env=environment(folder, {"PATH": PATH}), timeout=LIMIT_SECONDS, check=False)
    return done.stdout.decode("utf-8", "replace")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(address):
    """Whether something accepts on a Unix socket's path or a port of 127.0.0.1."""
    family, where = (socket.AF_UNIX, address) if isinstance(address, str) else (socket.AF_INET, ("127.0.0.1", address))
    with socket.socket(family) as one:
        return one.connect_ex(where) == 0


def wait_ready(process, condition):
    """Waits until a server answers; fails at once when it has ended."""
    wait_until(lambda: condition() or not process.alive(), f"{process} answers")
    if not process.alive():
        raise AssertionError(f"a server ended with {process.wait()}: {process.stderr()}")


def stop(process, signal=15, hide=()):
    """Ends a server. `ended` is no `status`: some pass on the signal, some do not."""
    process.signal(signal)
    return {"ended": process.wait(LIMIT_SECONDS), "stdout": hidden(process.stdout(), *hide),
            "stderr": hidden(process.stderr(), *hide)}
