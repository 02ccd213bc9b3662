# SPDX-License-Identifier: Apache-2.0
"""libheaptap-guest.so over glibc, jemalloc, tcmalloc and mimalloc: what is recorded is what the program has.

The bytes are what malloc_usable_size says to the program (tests/allocator/guest compares it with the host's). Error
bounds: none where every allocation is recorded; otherwise those of law.py, with a fixed seed.
"""

import re
import signal

import pytest

import guests
import symbols
from harness import PATIENCE_SECONDS, target
from law import assert_paths_keep_the_law, truth

pytestmark = pytest.mark.parametrize("host", guests.HOSTS)


def test_each_size_class(lab, host):
    """Blocks of 45 sizes, kept, every one recorded."""
    session = guests.run(lab, host, "--exact", "--", target("sampling_law"), "classes", "65536")
    session.ends()
    dump = lab.only_dump()
    assert dump.rate == 1
    paths = truth(session.stdout())
    assert len(paths) == 45
    for path, expected in paths.items():
        found = dump.estimate(symbols.stacks_through(dump, path))
        # Dumps of exact recordings are written so that jeprof's correction for samples gives the right numbers.
        assert (round(found.objects), round(found.bytes / 8) * 8) == expected, path


def test_the_sampling_law(lab, host):
    session = guests.run(lab, host, "--lg-sample", "12", "--", target("sampling_law"), "classes", str(1 << 20),
                         env={"HEAPTAP_CONF": "prof_seed:3"})
    session.ends()
    assert_paths_keep_the_law(lab, session, 1 << 12)


def test_threads_free_each_other_s_objects(lab, host):
    session = guests.run(lab, host, "--exact", "--", target("exact_threads"), "5000")
    session.ends(seconds=4 * PATIENCE_SECONDS)
    dump = lab.only_dump()
    printed = re.findall(r"^(\w+) (\d+) (\d+) (\d+)$", session.stdout(), re.MULTILINE)
    assert len(printed) == 3
    for path, objects, size, _ in printed:
        # Above 48 bytes the correction is 1.
        assert symbols.live(dump, path) == (int(objects), int(size)), path
    (entry,) = session.books()
    assert entry["samples_allocated"] >= sum(int(ever) for _, _, _, ever in printed) == 8 * 5000


def test_fork_with_threads(lab, host):
    """A child starts with empty books, and its parent keeps its own."""
    session = guests.run(lab, host, "--exact", "--", target("children"), "threads")
    session.ends(7)
    found = [dump.read() for dump in lab.dumps(kind="f")]
    leaks = sorted((symbols.live(dump, "parent_leak")[0], symbols.live(dump, "child_leak")[0]) for dump in found)
    assert leaks == [(0, 500), (1010, 0)]


def test_kill(lab, host):
    """The profile outlives the process."""
    session = guests.run(lab, host, "--exact", "--", target("puppet"), talks=True)
    pid = int(session.answer().split()[1])
    session.ask("keep 1000 100")
    session.ask("churn 1000 100")
    session.tell("raise 9")
    session.ends(128 + signal.SIGKILL)
    dump = lab.only_dump(pid, "f")
    assert symbols.kept(dump) == 1000
    assert symbols.live(dump, "churn_blocks")[0] == 0
