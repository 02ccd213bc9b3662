# SPDX-License-Identifier: Apache-2.0
"""The leak example of jemalloc's wiki: the same numbers as under jemalloc, readable by jeprof and google-pprof.

Covers size classes, exact recording, leak summary, dump, symbols. Error bound: none, all numbers are exact.
"""

import os
import re

from harness import target
from heap_v2 import Dump

SUMMARY = "Leak approximation summary: ~6926352 bytes, ~120 objects, >= 2 contexts"
LIVE = "6926352 bytes in 120 objects live"

# 1 KiB * (0 + .. + 79) and 4 KiB * (0 + .. + 39) in size classes, i = 0 being the class of 8 bytes.
DO_SOMETHING = (80, 3502088)
DO_SOMETHING_ELSE = (40, 3424264)


def assert_two_leaks(text):
    """jeprof's table has 3.3 MB for each of the two functions."""
    for function in ("do_something", "do_something_else"):
        assert re.search(rf"(?m)^\s+3\.3\s.*\s{function}$", text), text


def assert_exact(dump):
    assert (dump.total.objects, dump.total.bytes) == (120, 6926352)
    live = sorted(tuple(stack.total) for stack in dump.stacks if stack.total.objects > 0)
    assert live == sorted([DO_SOMETHING, DO_SOMETHING_ELSE])


def test_summary_and_readers(lab):
    session = lab.heaptap("run", "--exact", "--", target("wiki_leak"))
    session.ends()
    assert session.stdout() == ""
    (dump,) = lab.dumps()
    assert (dump.prefix, dump.sequence, dump.kind) == ("jeprof", 0, "f")
    assert session.lines() == [f"heaptap: wrote {os.path.basename(dump.path)}: {LIVE} (wiki_leak)"]
    assert_exact(dump.read())
    assert_two_leaks(lab.reader("jeprof", "--text", target("wiki_leak"), dump.path))


def test_google_pprof(lab):
    """gperftools' pprof cannot read jemalloc's format, only its own: --format."""
    session = lab.heaptap("run", "--exact", "--format", "gperftools", "--", target("wiki_leak"))
    session.ends()
    (path,) = [dump.path for dump in lab.dumps()]
    assert session.lines() == [f"heaptap: wrote {os.path.basename(path)}: {LIVE} (wiki_leak)"]
    for reader in ("google-pprof", "jeprof"):
        assert_two_leaks(lab.reader(reader, "--text", target("wiki_leak"), path))
    os.unlink(path)  # not in the format that is checked after each test


def test_jeprof_knows_the_thread(lab, leak):
    (thread,) = Dump(leak).threads
    assert_two_leaks(lab.reader("jeprof", "--text", f"--thread={thread}", target("wiki_leak"), leak))


def test_the_wiki_s_own_way(lab):
    """With only prof_leak:true in MALLOC_CONF, the process itself asks for the final dump and prints the summary."""
    session = lab.heaptap("run", "-o", "collector", "--", target("wiki_leak"),
                          env={"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0"})
    session.ends()
    assert f"<jemalloc>: {SUMMARY}" in session.lines()
    (own,) = [dump for dump in lab.dumps() if dump.prefix == "jeprof"]
    assert_exact(own.read())
    assert (own.sequence, own.kind) == (0, "f")


def test_dump_that_the_process_cannot_write(lab):
    """A process with prof_leak that cannot write its own final dump prints no summary, so its collector does, of the dump that
    it writes instead."""
    session = lab.heaptap("run", "--", target("wiki_leak"),
                          env={"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0,prof_prefix:/no/such/folder"})
    session.ends()
    assert f"<heaptap>: {SUMMARY}" in session.lines()
    (dump,) = lab.dumps()
    assert_exact(dump.read())
    assert [line for line in session.lines() if "Run jeprof" in line and os.path.basename(dump.path) in line], (
        "the next command is not said")


def test_closed_stderr(lab):
    """A process that has closed its stderr (coreutils' programs do that before they exit) cannot print its summary, so its
    collector prints it. Otherwise only the process does."""
    closed = lab.heaptap("run", "--", "sh", "-c", f"exec 2>&-; exec {target('wiki_leak')}",
                         env={"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0"})
    closed.ends()
    assert [line for line in closed.lines() if "Leak approximation" in line] == [f"<heaptap>: {SUMMARY}"]
    (advice,) = [line for line in closed.lines() if "Run jeprof" in line]
    assert re.search(r"on the dump of process \d+ \(wiki_leak\) for leak detail$", advice)
    open_stderr = lab.heaptap("run", "--", target("wiki_leak"), env={"MALLOC_CONF": "prof_leak:true,lg_prof_sample:0"})
    open_stderr.ends()
    assert [line for line in open_stderr.lines() if "Leak approximation" in line] == [f"<jemalloc>: {SUMMARY}"]


def test_static_program(lab):
    session = lab.heaptap("run", "--exact", "--", target("wiki_leak_static"))
    session.ends()
    dump = lab.only_dump()
    counts = sorted(tuple(stack.total) for stack in dump.stacks)
    assert DO_SOMETHING in counts
    assert DO_SOMETHING_ELSE in counts
    assert_two_leaks(lab.reader("jeprof", "--text", target("wiki_leak_static"), dump.path))


def test_without_a_preload_there_is_no_leak_but_a_line(lab):
    """A static program without the allocator runs; one line says that there is nothing to record."""
    with open(lab.path("plain.c"), "w", encoding="ascii") as source:
        source.write("int main(void) { return 5; }\n")
    compiler = lab.program("gcc", "-static", "plain.c", "-o", "plain")
    compiler.ends()
    session = lab.heaptap("run", "--", lab.path("plain"))
    session.records = False
    session.ends(5)
    assert re.search("no .*allocator|not .*record|nothing", "\n".join(session.lines()))
    assert lab.dumps() == []
