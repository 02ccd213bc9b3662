# SPDX-License-Identifier: Apache-2.0
"""Full maps: what could not be recorded is counted by reason, said in the dump and on stderr, and the books balance.

--map-size makes a map too small for what the target does. Error bounds: none.
"""

import re

import books
import symbols
from harness import target


def run_with(lab, size, *command):
    session = lab.heaptap("run", "--exact", "--map-size", size, "--", *command)
    session.losses_allowed = {"live_full", "tallies_full", "stacks_full", "stack_collision", "events_full"}
    session.ends()
    return session


def assert_said(lab, session, *reasons):
    (entry,) = session.books()
    lost = books.losses(entry)
    assert set(reasons) & set(lost), f"no loss among {reasons}: {lost}"
    dump = lab.only_dump(kind="f")
    assert dump.warnings, "the dump has no %warn line"
    assert [line for line in session.lines() if line.startswith("heaptap: ") and "full" in line], session.lines()
    return entry, lost, dump


def test_live_is_full(lab):
    session = run_with(lab, "live=256", target("contexts"), "10")
    entry, lost, dump = assert_said(lab, session, "live_full")
    assert entry["live_entries"] <= 256
    # Every sample is in the books or among the losses.
    assert entry["samples_allocated"] + lost["live_full"] >= 1024
    # jeprof shows the warning and reads on.
    text = lab.reader("jeprof", "--text", target("contexts"), dump.path)
    assert f"WARNING: {dump.warnings[0]}" in text
    assert "Total:" in text


def test_tallies_are_full(lab):
    entry, lost, _ = assert_said(lab, run_with(lab, "tallies=64", target("contexts"), "10"), "tallies_full")
    assert entry["samples_allocated"] + lost["tallies_full"] >= 1024


def test_stacks_are_full(lab):
    """The samples are in the books, their call paths are not: they stand under a placeholder."""
    entry, _, dump = assert_said(lab, run_with(lab, "stacks=64", target("contexts"), "10"),
                                 "stacks_full", "stack_collision")
    assert entry["samples_allocated"] >= 1024
    assert dump.total.objects >= 1024
    assert len(symbols.stacks_through(dump, "descend")) < 1024


def test_room_is_used_again(lab):
    """Eight times 60000 blocks, at other addresses each time, freed each time, in a map for 131072: room that frees
    leave behind is used again, and every sample is in the books or among the losses."""
    session = lab.puppet_under_heaptap("--exact", "--map-size", "live=131072")
    session.losses_allowed = {"live_full"}
    for size in (64, 128, 256, 512, 1024, 2048, 80, 96):
        session.ask(f"keep 60000 {size}")
        session.ask("drop")
    session.ends()
    (entry,) = session.books()
    lost = books.losses(entry).get("live_full", 0)
    assert lost < 240000
    assert entry["samples_allocated"] + lost >= 480000
    assert entry["samples_allocated"] + lost < 480100
    assert entry["live_entries"] < 100


def test_room_for_all_loses_nothing(lab):
    """The control: the same program, the same way, with room enough."""
    session = lab.heaptap("run", "--exact", "--map-size", "live=4096", "--", target("contexts"), "10")
    session.ends()
    dump = lab.only_dump(kind="f")
    assert dump.warnings == []
    assert sum(stack.total.objects for stack in symbols.stacks_through(dump, "descend")) == 1024


def test_a_collector_that_was_asleep_misses_no_process(lab):
    """heaptap is stopped while 50 processes come and go: the ring buffer (24 events) is full, and yet each has its
    final dump. How many events were lost is said."""
    script = "kill -STOP $PPID; for i in $(seq 50); do ls / >/dev/null; done; kill -CONT $PPID"
    session = lab.heaptap("run", "--exact", "--map-size", "events=4096", "--", "sh", "-c", script)
    session.losses_allowed = ("events_full",)
    session.ends()
    programs = [entry["tally_live_objects"] for entry in session.books()]
    # The shell, seq, and each ls.
    assert len(programs) >= 52
    assert len(lab.dumps(kind="f")) == len(programs)
    assert re.search("events lost", session.stderr()), session.stderr()
