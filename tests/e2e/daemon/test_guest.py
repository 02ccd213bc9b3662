# SPDX-License-Identifier: Apache-2.0
"""The daemon records guests of other allocators beside processes with heaptap's own, and names the allocator of each.

Recorded exactly. Error bound: none, except for what a thread allocates before it notices that it is recorded.
"""

import json
import os
import signal

from daemons import EXACT
from guests import UNNOTICED_BLOCKS, puppet
from harness import wait_until
from heap_v2 import Dump
from lab import READY_BLOCKS
from symbols import kept

DAEMON = ["--exact"]


def live(daemon, lab, pid):
    path = lab.path(f"{pid}.dump")
    daemon.dump(pid, path)
    return kept(Dump(path))


def test_side_by_side(lab, daemon):
    """Each started under the daemon."""
    guests = {host: puppet(lab, host, f"guest-{host}", env=EXACT) for host in ("glibc", "tcmalloc", "mimalloc")}
    # jemalloc would take these options for its own.
    guests["jemalloc"] = puppet(lab, "jemalloc", "guest-jemalloc", env={"HEAPTAP_CONF": "lg_prof_sample:0"})
    full = lab.preloaded_puppet("full", env=EXACT)
    for process in (*guests.values(), full):
        assert process.ask("keep 300 1000") == "kept 300"
        daemon.wait_recorded(process.target_pid)
        assert live(daemon, lab, process.target_pid) == 300
    listed = daemon.processes()
    versions = {host: listed[process.target_pid]["allocator"] for host, process in guests.items()}
    assert versions["jemalloc"] == "guest over jemalloc 5.3.0"
    for host, name in versions.items():
        assert name.startswith(f"guest over {host} ") and name[-1].isdigit(), name
    assert listed[full.target_pid]["allocator"] == "heaptap"
    text = daemon.client("list")
    assert text.splitlines()[0].split()[-1] == "ALLOCATOR"
    (line,) = [line for line in text.splitlines() if line.split()[0] == str(guests["jemalloc"].target_pid)]
    assert line.endswith("  guest over jemalloc 5.3.0")
    for process in (*guests.values(), full):
        process.ends()


def test_figures(lab, daemon):
    """What only the full library knows is left out for a guest."""
    guest, full = puppet(lab, "mimalloc", env=EXACT), lab.preloaded_puppet(env=EXACT)
    for process in (guest, full):
        process.ask("keep 300 1000")
        daemon.wait_recorded(process.target_pid)
    assert json.loads(daemon.client("stats", guest.target_pid, "--json"))["allocator"]["statistics"] is None
    assert json.loads(daemon.client("stats", full.target_pid, "--json"))["allocator"]["statistics"]["mapped"] > 0
    assert "statistics       known to the host only" in daemon.client("stats", guest.target_pid)

    def parts(process):
        profile = json.loads(daemon.get(f"/pid/{process.target_pid}/profile.json").body)
        return {part["name"] for part in profile["subject"]["coverage"]}
    left_out = {"cached", "fragmentation", "allocator metadata"}
    assert parts(full) >= left_out
    assert parts(guest) == parts(full) - left_out
    memory = [json.loads(daemon.get(f"/pid/{process.target_pid}/mtev/memory.json").body)["jemalloc"]["stats"]
              for process in (guest, full)]
    assert (set(memory[0]), set(memory[1])) == ({"allocated"}, {"allocated", "active", "resident", "mapped"})


def test_that_run_already(lab, start_daemon):
    """Guests that were there before the daemon are recorded from then on, steered, and found again by the next one."""
    guest, full = puppet(lab, "jemalloc"), lab.preloaded_puppet()
    daemon = start_daemon("--exact")
    bounds = {guest: UNNOTICED_BLOCKS, full: READY_BLOCKS}
    for process, bound in bounds.items():
        daemon.wait_recorded(process.target_pid)
        process.ask("keep 20000 100")
        assert 20000 - bound <= live(daemon, lab, process.target_pid) <= 20000
    daemon.restart()
    assert daemon.wait_recorded(guest.target_pid)["allocator"] == "guest over jemalloc 5.3.0"
    daemon.client("active", guest.target_pid, "off")
    assert wait_until(lambda: daemon.row(guest.target_pid)["ACTIVE"] == "off", "it is off")


def test_kill_9(lab, daemon):
    """The profile of a killed guest, with the name of its allocator."""
    guest = puppet(lab, "tcmalloc", env=EXACT)
    guest.ask("keep 400 1000")
    daemon.wait_recorded(guest.target_pid)
    os.kill(guest.target_pid, signal.SIGKILL)
    ended = daemon.wait_ended(guest.target_pid)
    assert ended["status"] == signal.SIGKILL
    assert ended["allocator"].startswith("guest over tcmalloc ")
    assert kept(daemon.only_dump(guest.target_pid)) == 400
