# SPDX-License-Identifier: Apache-2.0
"""heaptap report: the table of jeprof with the same digits, the views, live processes, and bad input."""

import gzip
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import xml.dom.minidom

import pytest

from harness import GO_PPROF, target, wait_until
from lab import assert_one_clear_line
from security import keeping_puppet

DAEMON = ["--exact"]
EXACT = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}


def report(lab, *arguments):
    return lab.answer_of("report", *arguments)


def jeprof(lab, *arguments):
    lines = lab.reader("jeprof", *arguments).splitlines()
    return "".join(line + "\n" for line in lines if not line.startswith("Using local file"))


@pytest.fixture
def moments(recordings):
    """Two dumps of one process. After the first, 30 blocks come to 10, 5 of 70000 bytes come too, and 7 of these come and
    go."""
    def record(lab):
        puppet = lab.heaptap("run", "--exact", "--", target("puppet"), talks=True, env=EXACT)
        puppet.answer()
        puppet.ask("keep 10 1000")
        assert puppet.ask(f"write string prof.dump {lab.path('base.prof')}") == "0"
        puppet.ask("keep 30 1000")
        puppet.ask("start 5 70000")
        puppet.ask("churn 7 70000")
        assert puppet.ask(f"write string prof.dump {lab.path('later.prof')}") == "0"
        puppet.ends()
        return lab.path("base.prof"), lab.path("later.prof")
    return recordings.once("moments", record)


@pytest.mark.parametrize("options", (
    (), ("--show_bytes",), ("--cum", "--show_bytes"), ("--inuse_objects",), ("--alloc_space", "--show_bytes"),
    ("--alloc_objects",), ("--focus=do_something_else", "--show_bytes"), ("--ignore=do_something_else",),
    ("--exclude=^do_something$", "--show_bytes"), ("--retain=main|do_something", "--show_bytes")),
    ids=" ".join)
def test_the_table_of_jeprof(lab, leak, options):
    assert report(lab, "--text", *options, leak) == jeprof(lab, "--text", *options, target("wiki_leak"), leak)


@pytest.mark.parametrize("view", (
    (), ("--markdown",), ("--json",), ("--top",), ("--tree",), ("--callers", "do_something"), ("--peek", "do_some"),
    ("--text",), ("--collapsed",), ("--svg",), ("--dot",), ("--speedscope",), ("--firefox",), ("--perfetto",),
    ("--html",), ("--jeprof",), ("--pprof",), ("--by", "thread")), ids=" ".join)
def test_each_view_says_what_is_missing(lab, leak, view):
    """On stderr, unless a person reads it in the view."""
    path = lab.path("with_losses.prof")
    with open(leak, encoding="utf-8") as whole, open(path, "w", encoding="utf-8") as file:
        file.write("%warn heaptap: 123 samples are lost\n" + whole.read())
    session = lab.heaptap("report", *view, "-o", lab.path("view"), path)
    session.records = False
    session.ends()
    with open(lab.path("view"), encoding="utf-8", errors="replace") as file:
        is_shown = "123 samples are lost" in file.read()
    is_said = session.stderr() == "heaptap: missing: 123 samples are lost\n"
    assert is_said or (is_shown and view[:1] in ((), ("--markdown",), ("--json",))), session.stderr()


def without_files_of_libc(table):
    return re.sub(r"(?m) \./\S+:\d+$", "", table)


def test_lines_and_a_base(lab, moments):
    """The recipe of libmtev's documents."""
    base, later = moments
    options = ("--text", "--lines", "--show_bytes", "--exclude=(mtev_memory_|start_blocks)", f"--base={base}")
    ours = report(lab, *options, later)
    # addr2line adds the compiler's discriminators to lines, and names another file for an inlined function of libc.
    theirs = re.sub(r" \(discriminator \d+\)", "", jeprof(lab, *options, target("puppet"), later))
    assert without_files_of_libc(ours) == without_files_of_libc(theirs)
    assert re.search(r"(?m)^ +30720 .* keep_blocks \S+puppet\.c:\d+$", ours), ours


def test_short_form(lab, leak):
    text = report(lab, leak)
    assert re.search(r"(?m)^  live       6\.6M in 120 objects, 120 samples \(every allocation is recorded\)$", text), text
    assert re.search(r"(?m)^   1\. 3\.3M, 50\.6%, 80 objects, 80 samples\n +do_something wiki_leak\.c:\d+\n"
                     r" +main wiki_leak\.c:\d+$", text), text
    # The commands that it names work.
    for command in re.search(r"(?ms)^next:\n(.*)", text).group(1).splitlines():
        assert "do_something" in report(lab, *command.split()[2:])


def test_views(lab, leak):
    assert re.search(r"(?m)^ *3\.3M +0 +50\.6% +3\.3M +50\.6% +80  do_something$", report(lab, "--top", leak))
    assert re.search(r"(?m)^ +6\.6M  100\.0%  main\n +3\.3M   50\.6%    do_something\n", report(lab, "--tree", leak))
    assert re.search(r"(?m)^ +3\.3M   50\.6%  do_something\n +3\.3M   50\.6%  main$",
                     report(lab, "--callers", "do_something", leak))
    peek = report(lab, "--peek", "^do_something$", leak)
    assert re.search(r"(?m)^ +3\.3M  100\.0%    main\n +3\.3M   50\.6%      3\.3M   50\.6% +do_something\n\Z", peek), peek
    assert "wiki_leak" in report(lab, "--top", "--by", "library", leak)
    document = json.loads(report(lab, "--json", leak))
    assert (document["live"]["bytes"], document["live"]["objects"], document["live"]["error"]) == (6926352, 120, 0)
    innermost = document["call_paths"][0]["frames"][0]
    assert (innermost["function"], os.path.basename(innermost["file"])) == ("do_something", "wiki_leak.c")
    # Without folding, the start of the program is there.
    assert "_start" not in report(lab, "--tree", leak)
    assert "_start" in report(lab, "--tree", "--full", leak)


def test_formats(lab, leak):
    """Each format is read by a program that is made for it."""
    path = lab.path("output")
    report(lab, "--pprof", leak, "-o", path)
    assert re.search(r"(?m) do_something$", lab.reader(*GO_PPROF, "-top", path))
    report(lab, "--dot", leak, "-o", path)
    assert "do_something" in lab.reader("dot", "-Tsvg", path)
    report(lab, "--svg", leak, "-o", path)
    titles = [title.firstChild.data for title in xml.dom.minidom.parse(path).getElementsByTagName("title")]
    assert "do_something: 3.3M, 50.6%, 80 samples" in titles
    report(lab, "--jeprof", leak, "-o", path)
    assert re.search(r"(?m)^ +3\.3 .* do_something$", lab.reader("jeprof", "--text", path))
    document = json.loads(report(lab, "--speedscope", leak))
    assert [one["endValue"] for one in document["profiles"]] == [6926352, 120, 6926352, 120]
    assert sum(document["profiles"][0]["weights"]) == 6926352
    document = json.loads(report(lab, "--firefox", leak))
    allocations = document["threads"][0]["nativeAllocations"]
    assert sum(allocations["weight"]) == 6926352 and allocations["weightType"] == "bytes"
    assert "do_something_else" in document["threads"][0]["stringArray"]
    assert "_start;__libc_start_main_impl;__libc_start_call_main;main;do_something 3502088\n" in report(
        lab, "--collapsed", leak)
    assert "| 3.3M | 50.6% | 80 | 80 | `do_something wiki_leak.c:" in report(lab, "--markdown", leak)


def test_a_difference_has_no_shares(lab, moments):
    """Growth and shrinkage cancel out in the total, so a share of it says nothing. The short form for a ticket has signs, and
    what there was before and after."""
    before, after = moments
    difference = ("--base", before, after)
    assert report(lab, "--top", *difference).splitlines()[0].split() == [
        "SELF", "+-", "TOTAL", "SAMPLES", "FUNCTION"]
    assert re.search(r"(?m)^ +\d[\d.]+K +\w", report(lab, "--tree", *difference))
    assert not re.search(r"(?m)^ +\S+ +\S+%", report(lab, "--tree", *difference))
    text = report(lab, "--markdown", *difference)
    assert re.search(r"(?m)^- live: \+\d.* in \+35 objects \(\d+ samples changed, ", text), text
    assert re.search(r"(?m)^- before: \d.* in 1\d objects, after: \d.* in 4\d objects$", text), text
    assert "freed or not" not in text
    assert "| live | objects | samples changed | call path |" in text
    assert re.search(r"(?m)^\| \+400\.0K \| \+5 \| 5 \| `", text), text


def test_live_process(lab, daemon):
    puppet = keeping_puppet(lab, 40)
    daemon.wait_recorded(puppet.pid)
    for subject in (puppet.pid, "puppet"):
        text = report(lab, subject, "--socket", daemon.socket)
        assert text.startswith(f"puppet (PID {puppet.pid})\n  live       40.0K in 40 objects"), text
        assert re.search(r"(?m)^  resident   \S+; live is \S+% of that$", text), text
        assert re.search(r"(?m)^ +keep_blocks puppet\.c:\d+$", text), text
    other = keeping_puppet(lab)
    daemon.wait_recorded(other.pid)
    assert_one_clear_line(lab.heaptap("report", "puppet", "--socket", daemon.socket), 2, "several", str(other.pid))
    other.signal(signal.SIGKILL)


def test_bad_input(lab, leak):
    with open(leak, encoding="utf-8") as file:
        whole = file.read()
    for name, contents in (("empty", ""), ("text", "no dump\n"), ("cut", whole[:whole.index("MAPPED") - 40])):
        with open(lab.path(name), "w", encoding="utf-8") as file:
            file.write(contents)
        assert_one_clear_line(lab.heaptap("report", lab.path(name)), 1, name)
        os.unlink(lab.path(name))
    assert_one_clear_line(lab.heaptap("report", target("wiki_leak")), 1, "wiki_leak")
    assert_one_clear_line(lab.heaptap("report", "nobody", "--socket", lab.path("none")), 1, "daemon")
    assert_one_clear_line(lab.heaptap("report", leak, "--focus", "("), 2, "--focus")
    assert_one_clear_line(lab.heaptap("report", leak, "--callers", "nobody"), 3, "nobody", "--top")
    assert_one_clear_line(lab.heaptap("report", leak, "--callers", "something"), 3, "no call path goes through something ",
                          r"did you mean do_something or do_something_else\?")
    assert_one_clear_line(lab.heaptap("report", leak, "--peek", "nobody"), 3, "nobody", "--top")
    for view in ((), ("--top",), ("--tree",), ("--json",), ("--markdown",)):
        assert_one_clear_line(lab.heaptap("report", leak, *view, "--focus", "nobody"), 3,
                              "no call path is left by --focus nobody; heaptap report --top")
    assert_one_clear_line(lab.heaptap("report", leak, "--ignore", "main"), 3, "left by --ignore main")
    assert_one_clear_line(lab.heaptap("report", leak, "--show", "nobody"), 3, "left by --show nobody")
    assert_one_clear_line(lab.heaptap("report", leak, "--peek", "("), 2, "--peek")
    assert_one_clear_line(lab.heaptap("report", leak, "--top", "--tree"), 2, "--t")
    assert_one_clear_line(lab.heaptap("report", leak, "--base", lab.path("none")), 1, "none")


def test_files_of_another_machine(lab, leak):
    """Of a container or of another host: the paths are those of that machine."""
    sysroot, symbols = lab.path("sysroot"), lab.path("symbols")
    os.makedirs(f"{sysroot}/far/away")
    with open(leak, encoding="utf-8") as file:
        text = file.read()
    far = lab.path("far.prof")
    with open(far, "w", encoding="utf-8") as file:
        file.write(text.replace(target("wiki_leak"), "/far/away/program"))
    names = ("do_something wiki_leak.c", "do_something_else wiki_leak.c")

    def said(*arguments):
        """What a report says and shows; files of the other machine may be missing."""
        session = lab.heaptap("report", *arguments, far)
        session.records = False
        session.ends()
        return session.stderr(), session.stdout()

    messages, text = said()
    assert "/far/away/program" in messages and not any(name in text for name in names)
    shutil.copy(target("wiki_leak"), f"{sysroot}/far/away/real")
    os.symlink("/far/away/real", f"{sysroot}/far/away/program")
    messages, text = said("--sysroot", sysroot)
    assert "/far/away/program" not in messages and all(name in text for name in names)
    # Without symbols in the program itself: a debug file by build id.
    note = lab.reader("readelf", "-n", target("wiki_leak"))
    build_id = re.search(r"Build ID: ([0-9a-f]+)", note).group(1)
    folder = f"{symbols}/.build-id/{build_id[:2]}"
    os.makedirs(folder)
    lab.reader("objcopy", "--only-keep-debug", target("wiki_leak"), f"{folder}/{build_id[2:]}.debug")
    lab.reader("strip", f"{sysroot}/far/away/real")
    assert not any(name in said("--sysroot", sysroot)[1] for name in names)
    assert all(name in said("--sysroot", sysroot, "--symbols", symbols)[1] for name in names)


def test_other_formats(lab, leak):
    """A document of graphviz, and a trace of Perfetto; formats of whole profiles refuse filters."""
    path = lab.path("graph.pdf")
    report(lab, "--pdf", "-o", path, leak)
    with open(path, "rb") as file:
        assert file.read(5) == b"%PDF-"
    report(lab, "--perfetto", "-o", lab.path("trace"), leak)
    with open(lab.path("trace"), "rb") as file:
        trace = file.read()
    assert b"do_something_else" in trace and b"malloc" in trace
    for view in ("--collapsed", "--jeprof", "--pprof"):
        assert_one_clear_line(lab.heaptap("report", view, "--focus=main", "-o", path, leak), 2, "--focus")


def test_dumps_with_symbols(lab, leak):
    """They need no files of the program: names come from the dump."""
    far = lab.path("far.prof")
    symbolized = report(lab, "--jeprof", leak).replace(target("wiki_leak"), "/far/away/program")
    with open(far, "w", encoding="utf-8") as file:
        file.write(symbolized)
    text = report(lab, "--top", far)
    assert "do_something_else" in text and text.splitlines()[:4] == report(lab, "--top", leak).splitlines()[:4]
    base = report(lab, "--base", far, far)
    assert "live       0 in 0 objects" in base
    with open(far, "w", encoding="utf-8") as file:
        file.write(symbolized[:200])
    assert_one_clear_line(lab.heaptap("report", far), 1, "far.prof: line")


def test_two_runs_are_compared_by_names(lab, leak):
    """Their addresses have nothing in common: a run before a change is compared with one after it."""
    lab.heaptap("run", "--exact", "--", target("wiki_leak")).ends()
    other = lab.dumps()[0].path
    for words in (("diff", leak, other), ("report", "--base", leak, other), ("report", "--top", "--base", leak, other)):
        session = lab.heaptap(*words)
        session.records = False
        session.ends()
        assert session.stderr() == ("heaptap: the dumps are of two processes: their call paths are compared by the names of "
                                    "functions, without lines\n"), words
        assert "main" not in session.stdout(), "nothing changed"
    kept = []
    for blocks in (10, 30):
        puppet = lab.puppet_under_heaptap("--exact", "-o", f"keeps{blocks}")
        puppet.ask(f"keep {blocks} 1024")
        puppet.ends()
        kept += [dump.path for dump in lab.dumps() if f"keeps{blocks}." in dump.path]
    text = lab.answer_of("diff", *kept, may_say="heaptap: the dumps are of two processes")
    assert re.search(r"(?m)^   1\. \+20\.0K, \+20 objects, 40 samples changed\n        keep_blocks\n", text), text
    assert len(re.findall(r"(?m)^ +\d+\. ", text)) == 1, text


BUILD = """
#include <stdlib.h>
static void *volatile kept[30];
#if COUNT > 10
__attribute__((noinline)) void is_new(void) { free(kept[0]); }
#endif
__attribute__((noinline)) void fill(void) { for (int i = 0; i < COUNT; i++) kept[i] = malloc(1024); }
int main(void) { fill(); return 0; }
"""


@pytest.mark.parametrize("before", ([], ["setarch", "-R"]), ids=["libraries elsewhere", "all at the same addresses"])
def test_two_builds_at_a_fixed_address_are_compared_by_names(lab, before):
    """The addresses of the program are the same, but other functions are there."""
    with open(lab.path("build.c"), "w", encoding="ascii") as file:
        file.write(BUILD)
    for count in (10, 30):
        subprocess.run(["gcc", "-O1", "-no-pie", f"-DCOUNT={count}", "build.c", "-o", "build"], cwd=lab.folder, check=True)
        lab.heaptap("run", "--exact", "-o", f"keeps{count}", "--", lab.path("build"), before=before).ends()
        (dump,) = [dump.path for dump in lab.dumps() if f"keeps{count}." in dump.path]
        lab.answer_of("report", "--raw", "-o", lab.path(f"raw{count}"), dump)
    text = lab.answer_of("diff", lab.path("raw10"), lab.path("raw30"), may_say="heaptap: the dumps are of two processes")
    assert re.search(r"(?m)^   1\. \+20\.0K, \+20 objects, 40 samples changed\n        fill\n        main\n", text), text
    assert len(re.findall(r"(?m)^ +\d+\. ", text)) == 1, text


@pytest.mark.parametrize("arguments, mode", (
    (("report", "--html"), 0o640), (("report", "--svg"), 0o640), (("report",), 0o640), (("view",), 0o640),
    (("report", "--raw"), 0o600), (("report", "--pprof"), 0o600),
))
def test_who_may_read_what_is_written(lab, leak, arguments, mode):
    """The umask decides, and the mode of a file that is replaced, but not for the addresses of a process."""
    path = lab.path("written")

    def mode_of_written():
        session = lab.heaptap(*arguments, leak, "-o", path, umask=0o027)
        session.records = False
        session.ends()
        return stat.S_IMODE(os.stat(path).st_mode)
    assert mode_of_written() == mode
    os.chmod(path, 0o604)
    assert mode_of_written() == (0o600 if mode == 0o600 else 0o604)
    # Whoever owns a file in a shared folder may have opened it to all.
    os.chmod(path, 0o666)
    os.chown(path, 12345, 12345)
    assert mode_of_written() == mode


def test_profiles_of_pprof(lab, leak):
    """Our own and those that another program has written, compressed or not, with names inside or not."""
    ours, theirs, plain = lab.path("ours.pb.gz"), lab.path("theirs.pb.gz"), lab.path("plain.pb")
    report(lab, "--pprof", leak, "-o", ours)
    lab.reader(*GO_PPROF, "-proto", "-output", theirs, ours)
    with gzip.open(ours) as packed, open(plain, "wb") as file:
        file.write(packed.read())
    top = report(lab, "--top", "--by", "line", leak)
    assert "do_something_else" in top
    for path in (ours, theirs, plain):
        assert report(lab, "--top", "--by", "line", path) == top
    assert "live       0 in 0 objects" in report(lab, "--base", ours, plain)
    assert "live       0 in 0 objects" in lab.answer_of("diff", ours, plain)
    lab.answer_of("view", ours, "-o", lab.path("page.html"))
    with open(lab.path("page.html"), encoding="utf-8") as file:
        assert "do_something_else" in file.read()


def test_bad_profiles_of_pprof(lab, leak):
    path, bad = lab.path("good.pb.gz"), lab.path("bad")
    report(lab, "--pprof", leak, "-o", path)
    with open(path, "rb") as file:
        packed = file.read()
    whole = gzip.decompress(packed)
    for contents, message in ((packed[:100], "cut off"), (packed[:-8] + b"x" * 8, "damaged"), (packed + b"x", "damaged"),
                              (whole[:300], "end of buffer"), (gzip.compress(whole[:-3]), "end of buffer"),
                              (gzip.compress(b"hello"), "a heap profile's first line"),
                              (whole.replace(b"inuse_space", b"inuse_spice").replace(b"alloc_space", b"alloc_spice")
                                    .replace(b"_objects", b"_objecta"), "found alloc_objecta, alloc_spice")):
        with open(bad, "wb") as file:
            file.write(contents)
        assert_one_clear_line(lab.heaptap("report", bad), 1, "bad", message)


def test_freed(lab, moments):
    """After the base, 30 blocks come, and 7 of 70000 bytes come and go."""
    base_of, later = moments
    document = json.loads(report(lab, "--json", later))
    for measure in ("bytes", "objects", "samples"):
        assert document["freed"][measure] == document["allocated"][measure] - document["live"][measure]
    for base in ((), ("--base", base_of)):
        table = report(lab, "--top", "--freed", *base, later)
        assert re.search(r"(?m)^560\.0K +0 +\S+ +560\.0K +\S+ +7  churn_blocks$", table), table
        assert not re.search(r"(?m)^ *[1-9].* keep_blocks$", table), table
    assert re.search(r"(?m);churn_blocks 573440$", report(lab, "--collapsed", "--freed", later))
    assert_one_clear_line(lab.heaptap("report", later, "--freed", "--allocated"), 2, "--freed")


def test_threads(lab):
    """Two threads keep blocks; what a dump does not know is refused in one line."""
    puppet = lab.heaptap("run", "--exact", "--", target("puppet"), talks=True, env=EXACT)
    puppet.answer()
    puppet.ask("in 1 name worker")
    puppet.ask("in 1 keep 40 1000")
    puppet.ask("keep 20 1000")
    assert puppet.ask(f"write string prof.dump {lab.path('dump.prof')}") == "0"
    puppet.ends()
    dump = lab.path("dump.prof")
    table = report(lab, "--top", "--by", "thread", dump)
    assert re.search(r"(?m)^ *40\.0K +0 .* +40  thread \d+ worker$", table), table
    tree = report(lab, "--tree", "--by", "thread", dump)
    assert re.search(r"(?m) thread \d+ worker\n(?: .*\n)*? +40\.0K .*keep_blocks$", tree), tree
    assert_one_clear_line(lab.heaptap("report", "--by", "thread", "--base", dump, dump), 2, "--base")
    assert_one_clear_line(lab.heaptap("report", "--by", "thread", "--collapsed", dump), 2, "--by thread")
    for what in ("size", "age"):
        assert_one_clear_line(lab.heaptap("report", "--by", what, dump), 1, f"--by {what}: this dump does not have the sizes and ages")
        assert_one_clear_line(lab.heaptap("report", "--by", what, "--freed", dump), 2, f"--by {what}", "live memory only")
    with open(lab.path("gperftools.prof"), "w", encoding="utf-8") as file:
        file.write("heap profile:      5:     5000 [     9:     9000] @ heapprofile\n"
                   "     5:     5000 [     9:     9000] @ 0x401000\n")
    assert_one_clear_line(lab.heaptap("report", "--by", "thread", lab.path("gperftools.prof")), 1, "threads apart")


def test_threads_of_a_process(lab, daemon):
    """Live, and from a profile of pprof with labels."""
    puppet = lab.preloaded(target("puppet"), talks=True)
    puppet.answer()
    daemon.wait_recorded(puppet.pid)
    puppet.ask("in 1 name worker")
    puppet.ask("in 1 keep 40 1000")
    path = lab.path("dump.pb.gz")
    lab.answer_of("dump", puppet.pid, "--format", "pprof", "-o", path, "--socket", daemon.socket)
    for subject in ((puppet.pid, "--socket", daemon.socket), (path,)):
        table = report(lab, "--top", "--by", "thread", *subject)
        assert re.search(r"(?m)^ *40\.0K +0 .* +40  thread \d+ worker$", table), table
    puppet.signal(signal.SIGKILL)


def test_sizes_and_ages_of_a_process(lab, daemon):
    """Live, from a dump, and in the profile for the page; the parts of the resident memory."""
    puppet = lab.preloaded(target("puppet"), talks=True, env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
    puppet.answer()
    daemon.wait_recorded(puppet.pid)
    puppet.ask("in 1 name worker")
    puppet.ask("in 1 keep 40 1000")
    puppet.ask("keep 3 70000")
    subject = (puppet.pid, "--socket", daemon.socket)
    paths = ("--focus", "keep_blocks")
    wait_until(lambda: "younger" not in report(lab, "--by", "age", *paths, *subject), "all blocks are a second old")
    path = lab.path("dump.pb.gz")
    lab.answer_of("dump", puppet.pid, "--format", "blocks", "-o", path, "--socket", daemon.socket)
    for one in (subject, (path,)):
        sizes = report(lab, "--by", "size", *paths, *one)
        assert re.search(r"(?m)^ *40\.0K +0 .* +40  blocks of 1024 bytes$", sizes), sizes
        assert re.search(r"(?m)^ *240\.0K +0 .* +3  blocks of 81920 bytes$", sizes), sizes
        ages = report(lab, "--by", "age", *paths, *one)
        assert re.search(r"(?m)^ *280\.0K +0 .* +43  (1 s to 10 s|10 s to 1 min)$", ages), ages
    # Its memory stays as it is between both readings.
    puppet.signal(signal.SIGSTOP)
    profile = json.loads(daemon.get(f"/pid/{puppet.pid}/profile.json").body)
    blocks, threads, texts = profile["blocks"], profile["threads"], profile["texts"]
    worker = next(number for number, text in enumerate(texts) if re.fullmatch(r"thread \d+ worker", text))
    assert sum(blocks["live_objects"]) == sum(profile["paths"]["live_objects"])
    rows = list(zip(blocks["thread"], blocks["size"], blocks["live_objects"]))
    assert sum(objects for thread, size, objects in rows if (thread, size) == (worker, 1024)) == 40
    assert sum(number for thread, number in zip(threads["thread"], threads["live_bytes"]) if thread == worker) >= 40960
    parts = {part["name"]: part["bytes"] for part in profile["subject"]["coverage"]}
    with open(f"/proc/{puppet.pid}/status", encoding="ascii") as file:
        resident = 1024 * int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
    assert sum(parts.values()) == resident
    assert parts["live"] > 0 and parts["stacks"] > 0 and parts["files"] > 0 and parts["allocator metadata"] > 0
    puppet.signal(signal.SIGKILL)
