# SPDX-License-Identifier: Apache-2.0
"""A lock between tests that would disturb each other, for all checkouts on this machine.

A test that measures the machine, or whose daemon records every process, holds the machine alone; all other tests share
it. The lock is in /run as it was when this module was loaded: a place has another one (place.py).
"""

import contextlib
import fcntl
import os

_FOLDER = os.open("/run", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
_LOCK = "heaptap-e2e.lock"
# Every process takes this lock before the other one. A process that waits for exclusive use keeps it meanwhile, so that
# sharing processes cannot make it wait for ever.
_TURNSTILE = "heaptap-e2e.turnstile"


def _open(name):
    return os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=_FOLDER)


def daemons_of_everyone():
    """The command lines, with PIDs, of running heaptap daemons that are not restricted to some processes."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            words = file.read().split("\0")
            if os.path.basename(words[0]) == "heaptap" and words[1:2] == ["daemon"] and \
                    not any(word.startswith(("--cgroup", "--only-library")) for word in words):
                found.append(f"process {pid} ({' '.join(words).strip()})")
    return found


class Machine:
    """`alone`: whether this process holds the machine exclusively; None if it does not hold it."""

    def __init__(self):
        self.alone = None
        self._lock = None

    def take(self, alone):
        """Does nothing if the machine is already held that way."""
        if self.alone == alone:
            return
        self.leave()
        lock = _open(_LOCK)
        with contextlib.ExitStack() as stack:
            turnstile = _open(_TURNSTILE)
            stack.callback(os.close, turnstile)
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._lock, self.alone = lock, alone

    def leave(self):
        if self._lock is not None:
            os.close(self._lock)
            self._lock, self.alone = None, None
