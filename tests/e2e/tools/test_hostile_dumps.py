# SPDX-License-Identifier: Apache-2.0
"""Dumps from anybody: root's commands have them parsed by a process without rights; other users read them themselves."""

import contextlib
import gzip
import json
import os
import re
import signal

import pytest

from daemons import NOBODY
from harness import target, wait_until
from lab import assert_one_clear_line
from pprof_bytes import named_place
from process_tree import descendants, resident_mib

# Of zeros. Packed 1000 to 1.
BOMB_BYTES = 1 << 30
MOST_MIB = 100


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    path = tmp_path_factory.mktemp("bomb") / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(BOMB_BYTES >> 24):
            file.write(bytes(1 << 24))
        file.write(b"x")
    return str(path)


def reader_of(session):
    """The process that parses; None: it has not begun or has ended."""
    for pid in descendants(session.pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                if file.read() == "heaptap-reader\n" and resident_mib(pid) > MOST_MIB:
                    return pid
    return None


def test_a_process_without_rights_parses(lab, bomb):
    session = lab.heaptap("report", bomb)
    reader = wait_until(lambda: reader_of(session), "the reader unpacks the dump")
    with open(f"/proc/{reader}/status", encoding="ascii") as file:
        status = dict(re.findall(r"^(\w+):\s*(.*)$", file.read(), re.MULTILINE))
    assert (int(status["CapEff"], 16), int(status["CapPrm"], 16), status["Seccomp"]) == (0, 0, "2")
    assert resident_mib(session.pid) - resident_mib(reader) < MOST_MIB
    assert_one_clear_line(session, 1, "cannot read .*bomb.gz: .*(memory|unpacked)")


def test_the_reader_dies(lab, bomb):
    session = lab.heaptap("view", bomb, "-o", lab.path("page.html"))
    reader = wait_until(lambda: reader_of(session), "the reader unpacks the dump")
    os.kill(reader, signal.SIGKILL)
    assert_one_clear_line(session, 1, "cannot read .*bomb.gz: .*has died")
    assert not os.path.exists(lab.path("page.html"))


def shown(lab, *arguments, says=(), **options):
    session = lab.heaptap(*arguments, **options)
    session.records = False
    session.ends()
    assert session.lines() == list(says)
    return session.stdout()


def write(path, contents):
    with open(path, "wb") as file:
        file.write(contents)
    os.chmod(path, 0o644)
    return path


def test_both_ways_are_the_same(lab):
    """As root and as another user; with the names inside the dump, too."""
    lab.heaptap("run", "--exact", "--", target("wiki_leak")).ends()
    dump = lab.dumps()[0].path
    os.chmod(lab.folder, 0o755)
    pprof, named = lab.path("pprof"), lab.path("named")
    shown(lab, "report", "--pprof", dump, "-o", pprof)
    shown(lab, "report", "--jeprof", dump, "-o", named)
    for path in (dump, pprof, named):
        os.chmod(path, 0o644)
        text = shown(lab, "report", "--top", path)
        assert "do_something_else" in text
        assert shown(lab, "report", "--top", path, **NOBODY) == text
    through_pipe = ["sh", "-c", f'cat {dump} | "$@"', "sh"]
    assert "do_something_else" in shown(lab, "report", "--top", "/dev/stdin", before=through_pipe)


def test_places_without_addresses(lab):
    """Equal names are the same place in two profiles."""
    os.chmod(lab.folder, 0o755)
    path = write(lab.path("names"), named_place("somewhere"))
    missing = "heaptap: missing: the profile does not say how often samples were taken, so standard errors are not known"
    for user in ({}, NOBODY):
        assert "somewhere" in shown(lab, "report", "--top", path, says=[missing], **user)
        assert json.loads(shown(lab, "diff", "--json", path, path, **user))["call_paths"] == []


@pytest.mark.parametrize("user", ({}, NOBODY), ids=("root", "nobody"))
@pytest.mark.parametrize("contents, words", (
    (b"", "empty"), (b"heap_v2/", "cut|expected"), (b"\x1f\x8b\x08\0", "cut off|damaged"),
    (b"heap_v2/1\n  t*: 1: 1 [0: 0]\n@ zzz\n", ":3: "), (b"\x0a\xff\xff\xff\xff\x0f", "")),
    ids=("empty", "cut", "gzip", "line", "pprof"))
def test_bad_dumps(lab, user, contents, words):
    os.chmod(lab.folder, 0o755)
    path = write(lab.path("bad"), contents)
    assert_one_clear_line(lab.heaptap("report", path, **user), 1, "/bad", words)
    assert_one_clear_line(lab.heaptap("report", lab.path("missing"), **user), 1, "No such file")
    assert_one_clear_line(lab.heaptap("report", lab.folder + "/", **user), 1, "directory")
