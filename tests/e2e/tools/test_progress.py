# SPDX-License-Identifier: Apache-2.0
"""The line that says how far a long look-up of names is."""

import contextlib
import os
import re
import signal
import subprocess

import pytest

from attacks import descendants
from harness import HEAPTAP, wait_until
from terminal import Terminal

# They take half a second.
ADDRESSES = 100_000
ATTEMPTS = 20
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


def names_reader(terminal):
    """The process that looks up names; the first one parses dumps."""
    readers = []
    for pid in descendants(terminal.popen.pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii") as file:
            readers += [pid] if file.read() == "heaptap-reader\n" else []
    return readers[1] if len(readers) == 2 else None


@contextlib.contextmanager
def held_up(arguments, folder, *more, **options):
    """A heaptap on a terminal whose look-up of names stands still."""
    for _ in range(ATTEMPTS):
        with Terminal(arguments, folder, *more, **options) as terminal:
            reader = wait_until(lambda: terminal.popen.poll() is not None or names_reader(terminal), "names are looked up")
            if reader is True:
                continue  # it was faster than this test
            os.kill(reader, signal.SIGSTOP)
            try:
                yield terminal, lambda: os.kill(reader, signal.SIGCONT)
            finally:
                with contextlib.suppress(OSError):
                    os.kill(reader, signal.SIGCONT)
            return
    raise AssertionError("the look-up of names is too fast to be seen")


def words(command, dumps):
    return [*command, *(dumps if command[0] == "diff" else dumps[1:])]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_on_a_terminal(lab, dumps, command):
    with held_up(words(command, dumps), lab.folder) as (terminal, go_on):
        terminal.wait_for(LINE)
        go_on()
        assert terminal.wait() == 0
        shown = terminal.text()
    # Nothing of it is left, and nothing else was written meanwhile.
    before, after = shown[:shown.rindex(REMOVED)], shown[shown.rindex(REMOVED) + len(REMOVED):]
    assert re.fullmatch(f"({LINE})+", before)
    assert "looking up" not in after and after


def test_a_narrow_terminal(lab, dumps):
    """The line does not wrap."""
    with held_up(words(COMMANDS[0], dumps), lab.folder, columns=30) as (terminal, go_on):
        line = terminal.wait_for(r"\r(heaptap: [^\r\x1b]*)\x1b\[K")
        assert len(line[1]) == 29
        go_on()
        assert terminal.wait() == 0


@pytest.mark.parametrize("how", ("pipe", "dumb"))
def test_never_elsewhere(lab, dumps, how):
    """Not in a pipe, although stdout is a terminal, and not on a terminal that cannot erase."""
    with open(lab.path("stderr"), "w+b") as stderr:
        options = {"env": {"TERM": "dumb"}} if how == "dumb" else {"stderr": stderr}
        with held_up(words(COMMANDS[0], dumps), lab.folder, **options) as (terminal, go_on):
            # A thread of its own would write the line; it begins before the reader.
            threads = os.listdir(f"/proc/{terminal.popen.pid}/task")
            go_on()
            assert terminal.wait() == 0
            assert len(threads) == 1
            assert "looking up" not in terminal.text() and "\r" not in terminal.text()
        assert stderr.read() == b""
