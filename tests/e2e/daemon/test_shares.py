# SPDX-License-Identifier: Apache-2.0
"""Shares: what one process takes of the maps in the kernel, another one does not miss.

Recording is exact; error bounds: none.
"""

import signal

import symbols
from daemon import EXACT
from harness import target, wait_until

SHARES = ("live_share", "tallies_share")
THREADS = 8000


def test_live_objects_of_a_quiet_process(lab, start_daemon):
    """A noisy process has as many as are free besides: half of the map. Then comes a second one, and gets a third
    of it; and a quiet one loses nothing, before or after them."""
    daemon = start_daemon("--exact", "--map-size", "live=4096", losses_allowed=("live_share",))
    early = lab.preloaded_puppet(env=EXACT)
    early.ask("keep 100 100")
    noisy = lab.preloaded_puppet(env=EXACT)
    noisy.ask("keep 50000 100")
    other = lab.preloaded_puppet(env=EXACT)
    other.ask("keep 50000 100")
    late = lab.preloaded_puppet(env=EXACT)
    late.ask("keep 100 100")
    early.ask("keep 100 100")
    for puppet, kept in ((early, 200), (late, 100)):
        entry = entry_of(daemon, puppet.target_pid)
        assert (entry["live_objects"], entry["losses"]) == (kept, {})
    for puppet, least in ((noisy, 1900), (other, 900)):
        entry = entry_of(daemon, puppet.target_pid)
        assert entry["live_objects"] >= least
        assert entry["live_objects"] <= 2048
        assert entry["live_objects"] + entry["losses"]["live_share"] == 50000
    # What they give back is there for others: the map is swept when the first of them finds no room.
    noisy.ask("drop")
    other.ask("drop")

    def has_room():
        lost = entry_of(daemon, late.target_pid)["losses"]
        late.ask("keep 100 200")
        return entry_of(daemon, late.target_pid)["losses"] == lost
    wait_until(has_room, "there is room")
    before = entry_of(daemon, late.target_pid)
    late.ask("keep 600 200")
    entry = entry_of(daemon, late.target_pid)
    assert entry["live_objects"] == before["live_objects"] + 600
    assert entry["losses"] == before["losses"]


def test_contexts_of_a_quiet_process(lab, start_daemon):
    """The same with the map of tallies: the noisy one has 4096 call paths, the quiet one 16."""
    daemon = start_daemon("--exact", "--map-size", "tallies=1024", "--map-size", "stacks=65536",
                          losses_allowed=("tallies_share",))
    noisy = lab.preloaded(target("paced"), 20000, 0, 1000, 12, env=EXACT)
    wait_losing(daemon, noisy.pid, "tallies_share")
    quiet = lab.preloaded(target("paced"), 1000, 1, 1000, 4, env=EXACT)
    quiet.ends()
    (_, objects, _, _, live, _, _, _) = quiet.stdout().splitlines()[1].split()
    noisy.signal(signal.SIGTERM)
    noisy.ends()
    wait_until(lambda: len(daemon.ended()) == 2, "both have ended")
    ended = {entry["pid"]: entry for entry in daemon.ended()}
    entry = ended[quiet.pid]
    assert (entry["samples"], entry["live_objects"], entry["losses"]) == (int(objects), int(live), {})
    entry = ended[noisy.pid]
    assert entry["contexts"] <= 512
    allocated = int(noisy.stdout().splitlines()[1].split()[1])
    assert entry["samples"] + sum(entry["losses"].values()) == allocated


def test_shares_by_rule(lab, start_daemon):
    daemon = start_daemon("--exact", "--rule", "comm=puppet max-live=100", "--rule", "comm=paced max-contexts=8",
                          losses_allowed=SHARES)
    puppet = lab.preloaded_puppet(env=EXACT)
    entry_of(daemon, puppet.target_pid)
    puppet.ask("keep 500 100")
    entry = entry_of(daemon, puppet.target_pid)
    assert (entry["live_objects"], entry["losses"]) == (100, {"live_share": 400})
    paced = lab.preloaded(target("paced"), 1000, 0, 1000, 6, env=EXACT)
    wait_losing(daemon, paced.pid, "tallies_share")
    assert entry_of(daemon, paced.pid)["contexts"] <= 8


def entry_of(daemon, pid):
    return wait_until(lambda: daemon.processes().get(pid), f"{pid} is recorded")


def wait_losing(daemon, pid, reason):
    wait_until(lambda: entry_of(daemon, pid)["losses"].get(reason), f"{pid} has losses for {reason}")


def test_tallies_of_threads_that_have_ended(lab, start_daemon):
    """8000 threads, one after the other, with a few tallies each, in a map of 4096: they are folded into one, and
    the totals are right."""
    daemon = start_daemon("--exact", "--map-size", "tallies=4096", "--dump-at-exit", "always")
    program = lab.preloaded(target("short_threads"), THREADS, 500, talks=True, env=EXACT)
    objects, size_bytes = map(int, program.answer().split()[1:])
    assert objects == THREADS * 8
    assert entry_of(daemon, program.pid)["losses"] == {}
    program.ends()
    wait_until(daemon.ended, "it has ended")
    dump = lab.only_dump(program.pid, "f")
    ever = [stack.ever for stack in symbols.stacks_through(dump, "allocate_in_thread")]
    assert sum(count.objects for count in ever) == objects
    assert sum(count.bytes for count in ever) == size_bytes
    assert len(dump.threads) < THREADS // 2
