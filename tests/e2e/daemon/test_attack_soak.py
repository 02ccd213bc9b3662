# SPDX-License-Identifier: Apache-2.0
"""All attacks one after the other, in random order, on one daemon with the rights and limits of its systemd unit.

HEAPTAP_LONG=1: an hour; otherwise each attack once. After each attack all questions are answered again, and nothing of the
innocent process was lost. At the end the daemon holds no more descriptors and objects of the kernel than after the first round
of all attacks, and its memory has grown by no more than a bound since.
"""

import contextlib
import json
import random
import time

import pytest

import attacks
from attack_service import Service, demand
from attackers import fuse_for_users
from attacks import OF_NOBODY
from harness import LONG, TIME_SCALE, wait_until
from holdings import counts_of
from process_tree import resident_mib

SECONDS = 3600 * TIME_SCALE if LONG else 0
# Of one attack, in which the innocent user asks all questions.
ATTACK_SECONDS = 10 * TIME_SCALE
# Probes of a file that no process maps any more stay for a quarter of an hour.
IDLE_SECONDS = 1200 * TIME_SCALE if LONG else 60 * TIME_SCALE
OF_IDLE_FILES = {"link_id", "pinned"}
# Memory that the C library keeps for later, and files that the daemon remembers.
MOST_GROWTH_MIB = 64

pytestmark = [pytest.mark.whole_machine, pytest.mark.endurance, pytest.mark.slow]


@pytest.fixture(autouse=True)
def fuse():
    with fuse_for_users():
        yield


def run_attack(service, attack):
    begin = time.monotonic()
    attack(service.attackers)
    under = service.measure(lambda: time.monotonic() - begin > ATTACK_SECONDS)
    well = service.end_attack()
    exact, losses = service.exactness()
    words = f"{attack.__name__}; last words: {service.daemon.process.lines()[-10:]}"
    demand(well is not None, f"all is not well again after {words}")
    demand(exact is None, f"{exact} after {words}")
    demand(not losses, f"lost: {losses} after {words}")
    demand(service.daemon.process.alive(), f"the collector has ended after {words}")
    return under.pause


def more_than(before, now):
    """The kinds of which there are more than before. Those of idle files do not count where there is no time to wait for
    their end."""
    return {kind for kind, count in now.items() if count > before.get(kind, 0)} - (set() if LONG else OF_IDLE_FILES)


@pytest.mark.timeout(2 * SECONDS + 5000 * TIME_SCALE)
def test_all_attacks(lab, new_cgroup, start_daemon, held, request):
    order = random.Random(request.node.nodeid)
    service = Service(lab, start_daemon, new_cgroup(limit=Service.limit()), "--listen", "127.0.0.1:0",
                      subordinate_ids=OF_NOBODY, loops=1, held=held)
    daemon = service.daemon
    pauses, memory, counts = {}, [], []
    begin = time.monotonic()
    try:
        while len(memory) < 2 or time.monotonic() - begin < SECONDS:
            for attack in order.sample(attacks.ALL, len(attacks.ALL)):
                pauses.setdefault(attack.__name__, []).append(run_attack(service, attack))
            with service.quiet():
                daemon.settle()
                memory.append(resident_mib(daemon.process.pid))
                counts.append(counts_of(daemon))
        with service.quiet(), contextlib.suppress(AssertionError):
            # What the last attack has left may go a little later.
            wait_until(lambda: not more_than(counts[0], counts_of(daemon)), "it holds no more", IDLE_SECONDS)
            counts.append(counts_of(daemon))
    finally:
        service.close()
    worst = max(pauses, key=lambda name: max(pauses[name]))
    held("rounds of all attacks", "-", len(memory))
    held("the longest pause", "-", f"{1000 * max(pauses[worst]):.0f} ms, {worst}")
    held("descriptors and objects of the kernel", f"no more than {json.dumps(counts[0])}", json.dumps(counts[-1]))
    held("growth of memory since the first round", f"{MOST_GROWTH_MIB} MiB", f"{memory[-1] - memory[0]:.0f} MiB")
    demand(not more_than(counts[0], counts[-1]), f"held after the first round {counts[0]}, at the end {counts[-1]}")
    demand(memory[-1] - memory[0] < MOST_GROWTH_MIB, f"memory in MiB after each round: {memory}")
