# SPDX-License-Identifier: Apache-2.0
"""Stops every program that the processes of a command execute, at its first instruction, so that a test meets it there,
however fast it is. The command itself is not stopped.

Not thread-safe.
"""

import os
import re
import signal

from harness import wait_until


class StoppedStarts:
    """`before` is the prefix of the command's words. strace runs then as long as the command and ends with its status; it is
    the parent of the command's process. `log` is a file for strace."""

    def __init__(self, log):
        self.before = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", log, "-e", "trace=execve",
                       "-e", "inject=execve:signal=STOP"]
        self._log = log
        self._met = 0

    def next(self):
        """Waits for the next process that stands still; returns its PID."""
        def find():
            if not os.path.exists(self._log):
                return None
            with open(self._log, encoding="utf-8", errors="replace") as file:
                # A process that is seen earlier would miss the signal to go on.
                stopped = re.findall(r"^(\d+) +--- stopped by SIGSTOP ---\n", file.read(), re.MULTILINE)
            return stopped[self._met] if len(stopped) > self._met else None
        pid = int(wait_until(find, f"program number {self._met} of the command starts"))
        self._met += 1
        return pid


def go_on(pid):
    os.kill(pid, signal.SIGCONT)
