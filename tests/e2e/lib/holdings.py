# SPDX-License-Identifier: Apache-2.0
"""What a daemon that has nothing to do holds: descriptors, objects of the kernel, threads."""

import contextlib
import os

from descriptors import descriptors
from harness import wait_until
from process_tree import descendants


def kinds_of_workers(daemon):
    kinds = []
    for pid in descendants(daemon.process.pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            name, *rest = file.read().decode().split("\0")
            kinds += rest[:1] if name == "heaptap-worker" else []
    return kinds


def counts_of(daemon):
    """Descriptors by what they are, and pinned objects; those of crews and connections come and go, so this waits for their
    end."""
    wait_until(lambda: not kinds_of_workers(daemon), "no worker is left")
    kinds = [next((kind for kind in ("link_id", "prog_id", "map_id") if kind in fields), "other")
             for fields in descriptors(daemon.process.pid)]
    pinned = sum(len(files) for _, _, files in os.walk(daemon.pin_folder))
    threads = len(os.listdir(f"/proc/{daemon.process.pid}/task"))
    return {**{kind: kinds.count(kind) for kind in set(kinds)}, "pinned": pinned, "threads": threads}
