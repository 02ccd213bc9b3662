# SPDX-License-Identifier: Apache-2.0
"""malloc_stats_print: keys and headings are the same as jemalloc's, and the figures are consistent.
"""

import bisect
import collections
import json
import re

import pytest

from allocators import JEMALLOC
from harness import LIBRARY, target
from json_keys import leaves

pytestmark = pytest.mark.without_bpf

# Keys that heaptap prints and jemalloc 5.3.0 does not.
OURS = {
    # Printed by jemalloc 5.3.1.
    "config.prof_frameptr",
    # Debian's jemalloc is built without it.
    "opt.xmalloc",
    # jemalloc has these options, and its mallctl shows them, but its report omits them.
    "opt.prof_bt_max", "opt.prof_stats", "opt.prof_sys_thread_name",
    "opt.prof_time_resolution", "opt.prof_pid_namespace",
}

# The maximum of ready blocks per thread and size (heaptap(1), LIMITS: fresh blocks), whichever is more.
READY_BYTES, READY_BLOCKS = 4096, 16


def without_repetitions(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice: {keys}"
    return dict(pairs)


def printed(lab, library, *options):
    program = lab.program(target("statistics_print"), *options, env={"LD_PRELOAD": library})
    program.ends()
    return program.stderr()


def test_json_has_jemalloc_s_keys(lab):
    """And the same kinds of values: numbers, truth values and texts."""
    theirs = leaves(json.loads(printed(lab, JEMALLOC, "J"))["jemalloc"])
    ours = leaves(json.loads(printed(lab, LIBRARY, "J"), object_pairs_hook=without_repetitions)["jemalloc"])
    assert len(theirs) > 200
    assert {name: ours.get(name) for name in theirs} == theirs
    assert set(ours) - set(theirs) == OURS


@pytest.mark.parametrize("letters", ("g", "m", "d", "a", "b", "l", "x", "e", "h", "ma", "gmdablxeh", "blx", "bogus"))
def test_letters_leave_out_what_jemalloc_leaves_out(lab, letters):
    theirs = leaves(json.loads(printed(lab, JEMALLOC, "J" + letters))["jemalloc"])
    ours = leaves(json.loads(printed(lab, LIBRARY, "J" + letters))["jemalloc"])
    assert set(theirs) ^ set(ours) <= OURS


def test_text_has_jemalloc_s_headings(lab):
    """heaptap prints every line of jemalloc's report without a number, and the other lines begin with the same words. Rows
    of size classes, and the marks for gaps between them, depend on the allocator."""
    def shape(text):
        lines = []
        for line in text.splitlines():
            if re.match(r" +\d+ +\d+ ", line) or line.strip() == "---":
                continue
            lines.append(re.sub(r' +\d[\d.]*|"[^"]*"|: (true|false)\b|-\d+', " #", line))
        return lines
    theirs = shape(printed(lab, JEMALLOC))
    ours = shape(printed(lab, LIBRARY))
    missing = [line for line in theirs if line not in ours]
    assert missing == []
    # In the same order, except for additions in the table of options.
    added = re.compile(r"  (" + "|".join(map(re.escape, OURS)) + r")\b")
    once = list(dict.fromkeys(theirs))
    assert [line for line in dict.fromkeys(ours) if not added.match(line)] == once


def test_rows_stand_under_their_headings(lab):
    """Columns are aligned with their headings, and the totals are the sums of the rows."""
    lines = printed(lab, LIBRARY).splitlines()
    for title, size in (("bins:", 41), ("large:          size", 191), ("extents:", 199)):
        start = next(i for i, line in enumerate(lines) if line.startswith(title))
        ends = [match.end() for match in re.finditer(r"\S+", lines[start])]
        ends = ends[1:] if lines[start].startswith(title.split()[0]) else ends
        rows = 0
        for line in lines[start + 1:]:
            if line.strip() == "---":
                continue
            if not line.startswith("  ") or not re.match(r" +\d", line):
                break
            rows += 1
            assert [match.end() for match in re.finditer(r"\S+", line)] == ends, line
        assert rows > 0
        assert rows <= size


def test_figures_are_the_program_s(lab):
    """The blocks of tests/targets/statistics_print.c by size class: it allocates 2000 blocks of 8 + 40 i bytes and keeps
    every second one."""
    report = json.loads(printed(lab, LIBRARY, "J"))["jemalloc"]
    arena, stats = report["stats.arenas"]["0"], report["stats"]
    bins = [bin["size"] for bin in report["arenas"]["bin"]]
    extents = [extent["size"] for extent in report["arenas"]["lextent"]]

    def by_class(sizes):
        classes = bins + extents
        return collections.Counter(classes[bisect.bisect_left(classes, size)] for size in sizes)
    asked = by_class(8 + 40 * i for i in range(2000))
    kept = by_class(8 + 40 * i for i in range(1, 2000, 2))
    assert [figures["nrequests"] for figures in arena["bins"]] == [asked[size] for size in bins]
    assert [figures["curlextents"] for figures in arena["lextents"]] == [kept[size] for size in extents]
    # Ready blocks of a thread count as allocated, like jemalloc's blocks in thread caches.
    for size, figures in zip(bins, arena["bins"]):
        assert 0 <= figures["curregs"] - kept[size] <= max(READY_BYTES // size, READY_BLOCKS)
        assert figures["nmalloc"] - figures["ndalloc"] == figures["curregs"]

    small = sum(size * figures["curregs"] for size, figures in zip(bins, arena["bins"]))
    large = sum(size * figures["curlextents"] for size, figures in zip(extents, arena["lextents"]))
    assert (arena["small"]["allocated"], arena["large"]["allocated"]) == (small, large)
    assert stats["allocated"] == small + large
    assert arena["pactive"] * report["arenas"]["page"] == stats["active"]
    assert arena["pdirty"] * report["arenas"]["page"] == sum(extent["dirty_bytes"] for extent in arena["extents"])
    assert stats["allocated"] <= stats["active"] <= stats["mapped"]
    assert arena["nthreads"] == 1


@pytest.mark.parametrize("options, begins", (
    ("stats_print:true", "___ Begin jemalloc statistics ___\n"),
    ("stats_print:true,stats_print_opts:Jg", '{"jemalloc":{"stats":{')))
def test_stats_print(lab, options, begins):
    """stats_print prints at exit, in the form of stats_print_opts."""
    program = lab.preloaded("/usr/bin/python3", "-c", "pass", env={"MALLOC_CONF": options})
    program.ends()
    assert program.stderr().startswith(begins), program.stderr()[:200]
