# SPDX-License-Identifier: Apache-2.0
"""A process and its descendants: which they are, and how much memory they have."""

import contextlib
import os


def descendants(pid):
    pids = [pid]
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                pids += [one for child in file.read().split() for one in descendants(int(child))]
    return pids


def runs(pid, name):
    """Whether the process runs the program of this name."""
    with contextlib.suppress(OSError):
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) == name
    return False


def resident_mib(pid):
    """Of a process and its descendants; pages that several of them share count once (Pss)."""
    total = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError), open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
            total += next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0)
    return total / 1024
