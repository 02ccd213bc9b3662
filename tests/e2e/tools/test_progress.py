# SPDX-License-Identifier: Apache-2.0
"""The line that says how far a long look-up of names is."""

import contextlib
import os
import re
import signal
import subprocess

import pytest

from harness import HEAPTAP
from stop_points import StoppedStarts, go_on
from terminal import Terminal

ADDRESSES = 2000
LINE = r"\rheaptap: looking up names: [0-9,]+ of [0-9,]+ addresses, heaptap\x1b\[K"
REMOVED = "\r\x1b[K"
COMMANDS = (("report", "--top"), ("diff", "--top", "1"), ("view", "-o", "page.html"))


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Two dumps whose addresses are spread over heaptap's own code, which has debug information."""
    program = os.path.realpath(HEAPTAP)
    headers = subprocess.run(["readelf", "-lW", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    offset, size = (int(number, 16) for number in re.search(
        r"LOAD +(0x\w+) 0x\w+ 0x\w+ 0x\w+ (0x\w+) R E", headers).groups())
    status, start = os.stat(program), 0x10000000
    paths = []
    for objects in (1, 2):
        lines = [f"heap_v2/1\n  t*: {objects * ADDRESSES}: {objects * ADDRESSES} [0: 0]\n"]
        lines += [f"@ {start + index * size // ADDRESSES:#x}\n  t*: {objects}: {objects} [0: 0]\n"
                  for index in range(1, ADDRESSES)]
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        lines += [f"\nMAPPED_LIBRARIES:\n{start:x}-{start + size:x} r-xp {offset:08x} {device} {status.st_ino} {program}\n"]
        paths.append(str(tmp_path_factory.mktemp("dumps") / f"dump{objects}"))
        with open(paths[-1], "w", encoding="ascii") as file:
            file.writelines(lines)
    return paths


def start_names_reader(starts):
    """Lets heaptap's workers go on, but for the one that looks up names; returns its PID."""
    readers = []
    # Two crews, each of hands and a reader. The first one parses dumps.
    for _ in range(4):
        pid = starts.next()
        with open(f"/proc/{pid}/cmdline", encoding="ascii") as file:
            if file.read() == "heaptap-worker\0foreground-reader\0":
                readers.append(pid)
        if readers[1:] != [pid]:
            go_on(pid)
    return readers[1]


@contextlib.contextmanager
def held_up(arguments, lab, **options):
    """A heaptap on a terminal whose look-up of names stands still: (terminal, PID of heaptap, how to go on)."""
    starts = StoppedStarts(lab.path("starts"))
    with Terminal(arguments, lab.folder, before=starts.before, **options) as terminal:
        reader = start_names_reader(starts)
        with open(f"/proc/{reader}/status", encoding="ascii") as file:
            heaptap = int(re.search(r"^PPid:\s+(\d+)$", file.read(), re.MULTILINE)[1])
        try:
            yield terminal, heaptap, lambda: go_on(reader)
        finally:
            if terminal.popen.poll() is None:
                os.kill(heaptap, signal.SIGKILL)


def words(command, dumps):
    return [*command, *(dumps if command[0] == "diff" else dumps[1:])]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_on_a_terminal(lab, dumps, command):
    with held_up(words(command, dumps), lab) as (terminal, _, look_up):
        terminal.wait_for(LINE)
        look_up()
        assert terminal.wait() == 0
        shown = terminal.text()
    # Nothing of it is left, and nothing else was written meanwhile.
    before, after = shown[:shown.rindex(REMOVED)], shown[shown.rindex(REMOVED) + len(REMOVED):]
    assert re.fullmatch(f"({LINE})+", before)
    assert "looking up" not in after and after


def test_a_narrow_terminal(lab, dumps):
    """The line does not wrap."""
    with held_up(words(COMMANDS[0], dumps), lab, columns=30) as (terminal, _, look_up):
        line = terminal.wait_for(r"\r(heaptap: [^\r\x1b]*)\x1b\[K")
        assert len(line[1]) == 29
        look_up()
        assert terminal.wait() == 0


@pytest.mark.parametrize("how", ("pipe", "dumb"))
def test_never_elsewhere(lab, dumps, how):
    """Not in a pipe, although stdout is a terminal, and not on a terminal that cannot erase."""
    with open(lab.path("stderr"), "w+b") as stderr:
        options = {"env": {"TERM": "dumb"}} if how == "dumb" else {"stderr": stderr}
        with held_up(words(COMMANDS[0], dumps), lab, **options) as (terminal, heaptap, look_up):
            # A thread of its own would write the line; it begins before the reader.
            threads = os.listdir(f"/proc/{heaptap}/task")
            look_up()
            assert terminal.wait() == 0
            assert len(threads) == 1
            assert "looking up" not in terminal.text() and "\r" not in terminal.text()
        assert stderr.read() == b""
