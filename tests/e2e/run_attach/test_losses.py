# SPDX-License-Identifier: Apache-2.0
"""Full maps: losses are counted by reason and reported in the dump and on stderr, and the books balance.

--map-size makes a map too small for the target. Error bounds: none.
"""

import re

import books
import symbols
from harness import target


def run_with(lab, size, losses):
    """Runs a program with 1024 blocks on as many call paths, with a map that is too small. The losses are in the books, in
    the dump and on stderr."""
    session = lab.heaptap("run", "--exact", "--map-size", size, "--", target("contexts"), "10")
    session.losses_allowed = losses
    session.ends()
    (entry,) = session.books()
    assert books.losses(entry) == losses
    dump = lab.only_dump(kind="f")
    assert dump.warnings, "the dump has no %warn line"
    assert [line for line in session.lines() if line.startswith("heaptap: ") and "full" in line], session.lines()
    return entry, dump


def test_live_is_full(lab):
    entry, dump = run_with(lab, "live=256", {"live_full": 768})
    assert (entry["samples_allocated"], entry["live_entries"]) == (256, 256)
    # jeprof shows the warning and reads on.
    text = lab.reader("jeprof", "--text", target("contexts"), dump.path)
    assert f"WARNING: {dump.warnings[0]}" in text
    assert "Total:" in text


def test_tallies_are_full(lab):
    entry, _ = run_with(lab, "tallies=64", {"tallies_full": 960})
    assert entry["samples_allocated"] == 64


def test_stacks_are_full(lab):
    """The samples are in the books without their call paths: a placeholder stands for these."""
    entry, dump = run_with(lab, "stacks=64", {"stacks_full": 960})
    assert (entry["samples_allocated"], dump.total.objects) == (1024, 1024)
    assert len(symbols.stacks_through(dump, "descend")) == 64


def test_room_is_used_again(lab):
    """Eight times 7500 blocks, at new addresses each time, freed each time, in a map for 16384: the room of freed blocks is
    reused, and every sample is in the books or among the losses."""
    session = lab.puppet_under_heaptap("--exact", "--map-size", "live=16384")
    session.losses_allowed = {"live_full"}
    for size in (64, 128, 256, 512, 1024, 2048, 80, 96):
        session.ask(f"keep 7500 {size}")
        session.ask("drop")
    session.ends()
    (entry,) = session.books()
    lost = books.losses(entry).get("live_full", 0)
    assert lost < 30000
    assert entry["samples_allocated"] + lost == 60000
    assert entry["live_entries"] == 0


def test_room_for_all_loses_nothing(lab):
    """The control: the same program in the same way, with enough room."""
    session = lab.heaptap("run", "--exact", "--map-size", "live=4096", "--", target("contexts"), "10")
    session.ends()
    dump = lab.only_dump(kind="f")
    assert dump.warnings == []
    assert sum(stack.total.objects for stack in symbols.stacks_through(dump, "descend")) == 1024


def test_a_collector_that_was_asleep_misses_no_process(lab):
    """heaptap is stopped while 50 processes start and end: the ring buffer (24 events) overflows, but each process has its
    final dump. The number of lost events is reported. (With --exact each would wait for its unwind tables.)"""
    script = "kill -STOP $PPID; for i in $(seq 50); do ls / >/dev/null; done; kill -CONT $PPID"
    session = lab.heaptap("run", "--lg-sample", "3", "--map-size", "events=4096", "--", "sh", "-c", script)
    session.losses_allowed = ("events_full",)
    session.ends()
    programs = [entry["tally_live_objects"] for entry in session.books()]
    # The shell, seq, and each ls.
    assert len(programs) == 52
    assert len(lab.dumps(kind="f")) == len(programs)
    assert re.search("events lost", session.stderr()), session.stderr()
