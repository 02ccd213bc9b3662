# SPDX-License-Identifier: Apache-2.0
"""What the kernel says about the open descriptors of a process."""

import contextlib
import os


def descriptors(pid):
    """The fields of each open descriptor, from /proc/PID/fdinfo. Descriptors that are closed meanwhile are left out."""
    found = []
    folder = f"/proc/{pid}/fdinfo"
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, name), encoding="ascii") as file:
            found.append({key: value.strip() for key, separator, value in
                          (line.partition(":") for line in file) if separator})
    return found
