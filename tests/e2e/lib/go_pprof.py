# SPDX-License-Identifier: Apache-2.0
"""Go's pprof, which reads profiles that heaptap writes."""

import fcntl
import functools
import os
import subprocess

from harness import BUILD, TIME_SCALE

# Go compiles pprof when it is first used (since 1.25), which takes most of a minute of processor time.
_COMPILE_SECONDS = 300 * TIME_SCALE


@functools.lru_cache(maxsize=None)
def words():
    """The words of its command. Its compiled form is kept for all tests, since their homes are new folders."""
    folder = os.path.join(BUILD, "e2e")
    os.makedirs(folder, exist_ok=True)
    command = ("env", f"GOCACHE={os.path.join(folder, 'go-cache')}", "go", "tool", "pprof")
    with open(os.path.join(folder, "go-cache.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # It prints its help with status 2.
        subprocess.run([*command, "-h"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_COMPILE_SECONDS,
                       check=False)
    return command
