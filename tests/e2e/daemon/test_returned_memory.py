# SPDX-License-Identifier: Apache-2.0
"""Memory that answers have taken goes back to the kernel."""

import threading

import pytest

from attackers import start_hostile
from daemons import EXACT
from harness import HEAPTAP, wait_until

# An idle daemon has 7. Without any care of the daemon the C library keeps 80 to 190.
MOST_MIB = 48
# As many as one user may have.
CONNECTIONS = 8


def anonymous_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon:")) / 1024


@pytest.mark.skipif("/sanitized/" in HEAPTAP, reason="sanitizers keep freed memory")
def test_after_large_profiles(lab, start_daemon):
    daemon = start_daemon("--exact", "--dump-at-exit", "never")
    process = start_hostile(lab, env=EXACT)
    wait_until(lambda: process.pid in daemon.processes(), "it is recorded")
    process.ask("paths 16")
    daemon.settle()
    sizes = []

    def get():
        sizes.append(len(daemon.get(f"/pid/{process.pid}/heap").body))
    clients = [threading.Thread(target=get) for _ in range(CONNECTIONS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert len(sizes) == CONNECTIONS and min(sizes) > 30_000_000
    wait_until(lambda: anonymous_mib(daemon.process.pid) < MOST_MIB, "the memory is given back")
