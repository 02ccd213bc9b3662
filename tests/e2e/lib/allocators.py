# SPDX-License-Identifier: Apache-2.0
"""Allocators under which a test runs: Debian's jemalloc, which proves that an expectation is right, and heaptap with a
collector, which must meet it.

A test that takes the fixture `allocator` runs once under each; one that takes `heaptap` runs under heaptap only. One that
takes `library` runs under each without a collector, for what the library does alone (jemalloc/conftest.py).
"""

import os
import re
import subprocess

from harness import HEAPTAP, LIBRARY, PATIENCE_SECONDS, TIME_SCALE, environment, target
from heap_v2 import Dump

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
KI, MI = 1 << 10, 1 << 20

# Whether the machine is so slow that its tests get more time.
IS_SLOW = TIME_SCALE > 1

# The prefix of the process's messages, the same as jemalloc's: scripts look for it.
SAYS = "<jemalloc>: "
# The prefix of heaptap's own lines on the stderr that it shares with the program.
_COLLECTOR_LINE = re.compile(r'^(heaptap: |<heaptap>: Leak approximation|<heaptap>: Run jeprof --|\{"books")')
# jeprof's table: flat, flat %, running %, cumulative, cumulative %, name.
_ROW = re.compile(r"^\s*(-?\d+)\s+(-?[\d.]+)%\s+(-?[\d.]+)%\s+(-?\d+)\s+(-?[\d.]+)% (.*)$")
_THREAD = re.compile(r"^  t(\d+): \d+: \d+ \[\d+: \d+\](?: (.*))?$")


class Allocator:
    """Programs that use the allocator, in a test's lab, most of them tests/targets/puppet.c, and their dumps."""

    def __init__(self, lab):
        self.lab = lab

    def puppet(self, conf, **options):
        process = self.start(target("puppet"), conf=conf, talks=True, **options)
        process.target_pid = int(process.answer().split()[1])
        return process

    def path(self, name):
        return self.lab.path(name)

    def dump_named(self, name):
        dump = Dump(self.path(name))
        dump.check()
        return dump

    def own_dumps(self, kind=None):
        """The dumps of the process, not those of the collector."""
        return [dump for dump in self.lab.dumps(kind=kind) if dump.prefix != "collector"]

    def names_of_dumps(self):
        return [os.path.basename(dump.path) for dump in self.own_dumps()]

    def check(self):
        """Runs after the test: no temporary file of an allocator or a collector may be left."""
        known = re.compile(r"\.(heap|prof|pdf)(\.\d+)?$|^\.std(err|out)\.")
        left = [os.path.join(where, name) for where, _, files in os.walk(self.lab.folder) for name in files
                if not known.search(name)]
        assert left == []


class _Preloaded(Allocator):
    """Programs that are started with the library `library` and with no collector."""

    def start(self, *command, conf="", env=None, **options):
        """Starts a program with this MALLOC_CONF; `talks` as in harness.Process."""
        env = dict(env or {}, LD_PRELOAD=self.library, MALLOC_CONF=conf)
        return self.lab.program(*command, env=env, **options)

    def shell(self, line, **options):
        """A documented command line, with the path of the library replaced."""
        return self.lab.program("sh", "-c", line, **options)


class HeaptapAlone(_Preloaded):
    library = LIBRARY


class Jemalloc(_Preloaded):
    """Debian's jemalloc is linked with libstdc++, whose start allocates one block of 72704 bytes (class 81920): one more
    call path than the program's own."""

    library = JEMALLOC
    noise_objects, noise_bytes, noise_contexts = 1, 81920, 1
    noise_functions = {"_dl_init", "_dl_start_user", "call_init"}


class Heaptap(Allocator):
    """Records programs with `heaptap run`, whose own final dumps are named collector.*."""

    library, binary = LIBRARY, HEAPTAP
    noise_objects, noise_bytes, noise_contexts = 0, 0, 0
    noise_functions = frozenset()

    def start(self, *command, conf="", env=None, **options):
        return self.lab.heaptap("run", "-o", "collector", "--", *command, binary=self.binary,
                                env=dict(env or {}, MALLOC_CONF=conf), **options)

    def shell(self, line, **options):
        return self.lab.heaptap("run", "-o", "collector", "--", "sh", "-c", line, binary=self.binary, **options)


def assert_answers(process, *pairs):
    """Sends each command and checks its answer."""
    for command, expected in pairs:
        assert process.ask(command) == expected, f"{command}; stderr:\n{process.stderr()}"


def thread_names(path):
    """{uid: name} from the header of a dump; None for a thread without a name."""
    names = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("@") or line == "MAPPED_LIBRARIES:\n":
                break
            match = _THREAD.match(line.rstrip("\n"))
            if match:
                names[int(match.group(1))] = match.group(2)
    return names


def said(process):
    """The stderr lines of the program and its allocator."""
    return [line for line in process.stderr().splitlines() if line and not _COLLECTOR_LINE.match(line)]


def table(text):
    """{name: (flat, cumulative)} of jeprof --text --show_bytes."""
    rows = [match.groups() for match in map(_ROW.match, text.splitlines()) if match]
    return {name: (int(flat), int(cumulative)) for flat, _, _, cumulative, _, name in rows}


def total(text):
    """Bytes in jeprof's first line."""
    return int(re.search(r"^Total: (-?\d+) B$", text, re.MULTILINE).group(1))


def jeprof(lab, *arguments):
    """jeprof's stdout, as bytes (it may be a PDF)."""
    result = subprocess.run(["jeprof", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=lab.folder,
                            env=environment(lab.folder), timeout=2 * PATIENCE_SECONDS, check=False)
    assert result.returncode == 0, result.stderr.decode(errors="replace")
    return result.stdout


def jeprof_table(lab, *arguments):
    """The table of a profile, and its total."""
    text = jeprof(lab, "--text", "--show_bytes", *arguments).decode()
    return table(text), total(text)


def text_of_pdf(path):
    """Number of pages of a PDF and its text, by ghostscript."""
    pages = subprocess.run(["gs", "-q", "-dNODISPLAY", "-dNOSAFER", "-c",
                            f"({path}) (r) file runpdfbegin pdfpagecount = quit"],
                           stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    text = subprocess.run(["gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=txtwrite", "-sOutputFile=-", path],
                          stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    return int(pages), text
