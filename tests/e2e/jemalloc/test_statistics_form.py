# SPDX-License-Identifier: Apache-2.0
"""malloc_stats_print: the form is jemalloc's, key for key and heading for heading; the figures agree with each
other.
"""

import json
import re

import pytest

from allocators import JEMALLOC
from harness import LIBRARY, target

pytestmark = pytest.mark.without_bpf

# Keys that jemalloc 5.3.0 does not print, and we do.
OURS = {
    # Printed by jemalloc 5.3.1.
    "config.prof_frameptr",
    # Debian's jemalloc is built without it.
    "opt.xmalloc",
    # jemalloc has these options, and its mallctl shows them, but its report forgets them.
    "opt.prof_bt_max", "opt.prof_stats", "opt.prof_sys_thread_name",
    "opt.prof_time_resolution", "opt.prof_pid_namespace",
}


def key_tree(value, path=""):
    """The dotted names of all leaves. Elements of arrays are all alike, which is checked too; arenas are one."""
    if isinstance(value, dict):
        leaves = set()
        for key, inner in value.items():
            key = "<arena>" if path == "stats.arenas" else key
            leaves |= key_tree(inner, f"{path}.{key}" if path else key)
        return leaves or {path}
    if isinstance(value, list):
        trees = [key_tree(inner, path + "[]") for inner in value]
        assert all(tree == trees[0] for tree in trees), path
        return trees[0] if trees else {path}
    return {path}


def without_repetitions(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice: {keys}"
    return dict(pairs)


def printed(lab, library, *options):
    program = lab.program(target("statistics_print"), *options, env={"LD_PRELOAD": library})
    program.ends()
    return program.stderr()


def test_json_has_jemalloc_s_keys(lab):
    theirs = key_tree(json.loads(printed(lab, JEMALLOC, "J"))["jemalloc"])
    ours = key_tree(json.loads(printed(lab, LIBRARY, "J"), object_pairs_hook=without_repetitions)["jemalloc"])
    assert len(theirs) > 200
    assert theirs - ours == set()
    assert ours - theirs == OURS


def test_json_types_are_jemalloc_s(lab):
    """Numbers, truth values and texts where jemalloc has them."""
    def types(value, path=""):
        if isinstance(value, dict):
            return {name: kind for key, inner in value.items()
                    for name, kind in types(inner, f"{path}.{key}").items()}
        if isinstance(value, list):
            return types(value[0], path + "[]")
        return {path: type(value)}
    theirs = types(json.loads(printed(lab, JEMALLOC, "J")))
    ours = types(json.loads(printed(lab, LIBRARY, "J")))
    assert {name: (theirs[name], ours[name]) for name in theirs if theirs[name] != ours[name]} == {}


def test_letters_leave_out_what_jemalloc_leaves_out(lab):
    for letters in ("g", "m", "d", "a", "b", "l", "x", "e", "h", "ma", "gmdablxeh", "blx", "bogus"):
        theirs = key_tree(json.loads(printed(lab, JEMALLOC, "J" + letters)))
        ours = key_tree(json.loads(printed(lab, LIBRARY, "J" + letters)))
        assert {key for key in theirs ^ ours if key.replace("jemalloc.", "") not in OURS} == set()


def test_text_has_jemalloc_s_headings(lab):
    """Every line of jemalloc's that has no number is one of ours, and the others begin with the same words. Rows of
    size classes, and the marks for gaps between them, depend on the allocator."""
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
    # In the same order, but for what the table of options adds.
    added = re.compile(r"  (" + "|".join(map(re.escape, OURS)) + r")\b")
    once = list(dict.fromkeys(theirs))
    assert [line for line in dict.fromkeys(ours) if not added.match(line)] == once


def test_rows_stand_under_their_headings(lab):
    """Each column ends where its heading ends, and the totals are the sums of the rows."""
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


def test_figures_agree_with_each_other(lab):
    report = json.loads(printed(lab, LIBRARY, "J"))["jemalloc"]
    arena = report["stats.arenas"]["0"]
    stats = report["stats"]
    bins = zip(report["arenas"]["bin"], arena["bins"])
    small = 0
    for description, figures in bins:
        small += description["size"] * figures["curregs"]
        assert figures["nmalloc"] - figures["ndalloc"] == figures["curregs"]
        assert figures["nrequests"] <= figures["nmalloc"]
    large = sum(description["size"] * figures["curlextents"]
                for description, figures in zip(report["arenas"]["lextent"], arena["lextents"]))
    assert arena["small"]["allocated"] == small
    assert arena["large"]["allocated"] == large
    assert stats["allocated"] == small + large
    assert arena["pactive"] * report["arenas"]["page"] == stats["active"]
    assert arena["pdirty"] * report["arenas"]["page"] == sum(e["dirty_bytes"] for e in arena["extents"])
    assert stats["allocated"] <= stats["active"]
    assert stats["active"] <= stats["mapped"]
    assert arena["nthreads"] == 1
    # 1000 of the blocks of 8 + 40 i bytes live, and little else.
    live = sum(8 + 40 * i for i in range(1, 2000, 2))
    assert stats["allocated"] >= live
    assert stats["allocated"] < live * 1.3


def test_stats_print(lab):
    """stats_print prints when the process exits, as stats_print_opts has it."""
    for options, begins in (("stats_print:true", "___ Begin jemalloc statistics ___\n"),
                            ("stats_print:true,stats_print_opts:Jg", '{"jemalloc":{"stats":{')):
        program = lab.program("/usr/bin/python3", "-c", "pass",
                              env={"LD_PRELOAD": LIBRARY, "MALLOC_CONF": options})
        program.ends()
        assert program.stderr().startswith(begins), program.stderr()[:200]
