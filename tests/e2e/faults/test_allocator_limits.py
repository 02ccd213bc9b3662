# SPDX-License-Identifier: Apache-2.0
"""Programs under the limits of the system, with the preloaded libraries: what glibc grants alone, they grant.

The program (tests/targets/faults/every_request.c) needs little; it checks what it gets, and goes on where it gets nothing.
"""

import collections

import pytest

import guests
import refused
from daemons import NOBODY
from harness import target

pytestmark = pytest.mark.without_bpf

MIB = 1 << 20
# The largest block that it asks for. With glibc it then needs 8 MiB of address space.
LITTLE = 256 << 10
# The library's tables take 5 MiB, and each class of a thread 64 KiB at least.
ENOUGH = 28 * MIB
# What systemd allows its services, and most distributions their users, to lock.
LOCKABLE = 8 * MIB

# Where each host gets along alone. jemalloc 5.3 does not survive a new thread for which it has no memory.
DATA_OF_HOSTS = {"glibc": 32 * MIB, "jemalloc": 64 * MIB, "tcmalloc": 32 * MIB, "mimalloc": 32 * MIB}

# wrapper: a command before the program; arguments: its own; options: of lab.program; refused: what it is refused alone.
Limit = collections.namedtuple("Limit", "wrapper arguments options refused")

# Without capabilities: root may exceed the limits of locked memory and of processes.
LIMITS = {
    "address space": Limit(("prlimit", f"--as={ENOUGH}"), (LITTLE,), {}, 0),
    "data": Limit(("prlimit", f"--data={ENOUGH}"), (LITTLE,), {}, 0),
    "locked memory": Limit(("prlimit", f"--memlock={LOCKABLE}"), (4096, "locked"), NOBODY, 0),
    # Three threads and a fork.
    "processes": Limit(("prlimit", "--nproc=1"), (LITTLE,), NOBODY, 4),
    "descriptors": Limit((), (LITTLE, "descriptors"), {}, 0),
    "keys of threads": Limit((), (LITTLE, "keys"), {}, 0),
    "proc": Limit(("unshare", "--mount", "sh", "-c", 'umount --lazy /proc; exec "$@"', "sh"), (LITTLE,), {}, 0),
}
MODES = [mode for mode in refused.MODES if not mode.endswith("-eager")]
GUESTS = [mode for mode in MODES if mode.startswith("guest")]

OPEN = {}


def marked(limit, mode):
    reason = OPEN.get((limit, mode))
    marks = pytest.mark.xfail(strict=True, reason=reason) if reason else ()
    return pytest.param(limit, mode, marks=marks, id=f"{limit}-{mode}".replace(" ", "-"))


def run(lab, mode, limit):
    """What a program was refused, as (before, after)."""
    wrapper, arguments, options, _ = LIMITS[limit]
    found = refused.result(refused.start(lab, mode, *arguments, wrapper=wrapper, **options))
    return found.refused_before, found.refused_after


@pytest.mark.parametrize("limit", LIMITS)
def test_glibc_alone(lab, limit):
    """What the others are compared with."""
    assert run(lab, refused.ALONE, limit) == (LIMITS[limit].refused,) * 2


@pytest.mark.parametrize("limit, mode", [marked(limit, mode) for limit in LIMITS for mode in MODES])
def test_what_glibc_grants_is_granted(lab, limit, mode):
    assert run(lab, mode, limit) == (LIMITS[limit].refused,) * 2


@pytest.mark.parametrize("limit, mode", [marked(limit, mode) for limit in ("locked", "keys") for mode in MODES])
def test_no_more_memory_than_is_used(lab, limit, mode):
    """While new memory is locked, all of a new mapping is resident: glibc takes 128 KiB at once. Without a key, the end of a
    thread is seen by other means."""
    found, alone = [refused.result(refused.start(lab, each, LITTLE, limit)) for each in (mode, refused.ALONE)]
    assert (found.refused_before, found.refused_after) == (0, 0)
    assert found.resident_kib <= alone.resident_kib + ENOUGH // 1024


@pytest.mark.parametrize("limit, mode", [marked("mappings", mode) for mode in MODES])
def test_as_many_mappings_as_there_may_be(lab, limit, mode):
    """glibc refuses many requests too. Nothing is damaged, and with fewer mappings all is granted."""
    found = refused.result(refused.start(lab, mode, refused.JUST_HUGE, limit))
    # No thread has a stack.
    assert found.refused_before > 0
    assert found.refused_after == 0


@pytest.mark.parametrize("limit, mode", [marked("memory", mode) for mode in GUESTS])
def test_a_guest_grants_what_its_host_grants(lab, limit, mode):
    """Of more memory than the machine has. The full library grants addresses, as jemalloc does."""
    assert limit == "memory"
    answers = [lab.program(target("grants"), env=refused.MODES.get(each, {})) for each in (refused.ALONE, mode)]
    for process in answers:
        process.ends()
    assert answers[1].stdout() == answers[0].stdout()


@pytest.mark.parametrize("host, mode", [marked(host, mode) for host in guests.HOSTS for mode in GUESTS])
def test_a_guest_goes_on_where_its_host_does(lab, host, mode):
    """With a limit of data."""
    limit = ("prlimit", f"--data={DATA_OF_HOSTS[host]}")
    refused.result(refused.start(lab, refused.ALONE, LITTLE, wrapper=limit, host=host))
    refused.result(refused.start(lab, mode, LITTLE, wrapper=limit, host=host))
