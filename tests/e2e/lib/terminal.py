# SPDX-License-Identifier: Apache-2.0
"""A heaptap whose stdout and stderr are a pseudo terminal."""

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading

from harness import HEAPTAP, PATIENCE_SECONDS, environment, wait_until

COLUMNS = 120


class Terminal:
    """Runs until the end of the with statement at the latest."""

    def __init__(self, arguments, folder, env=(), columns=COLUMNS, before=(), **options):
        """`before`: a command that runs heaptap."""
        self._output = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        options = {"stdin": subprocess.DEVNULL, "stdout": theirs, "stderr": theirs, **options}
        env = {**environment(folder), "TERM": "xterm", **dict(env)}
        self.popen = subprocess.Popen([*before, HEAPTAP, *map(str, arguments)], env=env, cwd=folder, **options)
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        # EIO: the other end was closed.
        with contextlib.suppress(OSError):
            while part := os.read(self._ours, 65536):
                self._output += part

    def text(self):
        """What it has written so far, with its control sequences."""
        return self._output.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, pattern):
        return wait_until(lambda: re.search(pattern, self.text()), f"{pattern} is shown")

    def wait(self):
        """Waits for its end and for all that it has written; returns its exit status."""
        status = self.popen.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.popen.poll() is None:
            self.popen.kill()
        self.wait()
        os.close(self._ours)
