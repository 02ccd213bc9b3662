# SPDX-License-Identifier: Apache-2.0
"""What a daemon that has nothing to do holds: descriptors, objects of the kernel, threads."""

import contextlib
import os

from descriptors import descriptors
from harness import wait_until
from process_tree import descendants


def workers_of(daemon):
    """{PID: kind} of its workers."""
    workers = {}
    for pid in descendants(daemon.process.pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            name, *rest = file.read().decode().split("\0")
            if name == "heaptap-worker":
                workers[pid] = rest[0]
    return workers


def counts_of(daemon):
    """Descriptors by what they are, pinned objects and threads. The socket of each worker does not count: workers come and go
    as long as a recorded process lives."""
    def look():
        before = workers_of(daemon)
        found = list(descriptors(daemon.process.pid))
        return (before, found) if workers_of(daemon) == before else None
    workers, found = wait_until(look, "its workers stay the same during a look")
    kinds = [next((kind for kind in ("link_id", "prog_id", "map_id") if kind in fields), "other") for fields in found]
    pinned = sum(len(files) for _, _, files in os.walk(daemon.pin_folder))
    threads = len(os.listdir(f"/proc/{daemon.process.pid}/task"))
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    return {**counts, "other": counts["other"] - len(workers), "pinned": pinned, "threads": threads}
