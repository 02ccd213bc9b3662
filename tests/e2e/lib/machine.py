# SPDX-License-Identifier: Apache-2.0
"""The lock that keeps tests apart which would see each other: on this machine, whatever checkout they are of.

A daemon records every process, and whoever records a process first sets its rate. So a test that starts one holds the
machine alone; any other test shares it, since most start processes that a daemon would record.
"""

import contextlib
import fcntl
import os

LOCK = "/run/heaptap-e2e.lock"
# Whoever wants the lock passes this one first, one after the other. Whoever waits to be alone keeps it meanwhile, so
# that those who share cannot keep coming and make the wait endless.
TURNSTILE = "/run/heaptap-e2e.turnstile"


def _open(path):
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Machine:
    """`alone`: whether this process holds it for itself; None if it does not hold it."""

    def __init__(self):
        self.alone = None
        self._lock = None

    def take(self, alone):
        """Does nothing if it is held that way already."""
        if self.alone == alone:
            return
        self.leave()
        lock = _open(LOCK)
        with contextlib.ExitStack() as stack:
            turnstile = _open(TURNSTILE)
            stack.callback(os.close, turnstile)
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        self._lock, self.alone = lock, alone

    def leave(self):
        if self._lock is not None:
            os.close(self._lock)
            self._lock, self.alone = None, None
