# SPDX-License-Identifier: Apache-2.0
"""What the walkthroughs stand on: the same test under Debian's jemalloc, which proves that the expectation is
jemalloc's, and under heaptap with a collector.

A walkthrough is a class that names no allocator, derived twice:

    class LeakChecking: ...                                     the tests
    class LeakCheckingJemalloc(LeakChecking, OnJemalloc): ...   the expectation
    class LeakCheckingHeaptap(LeakChecking, OnHeaptap): ...     heaptap keeps it
"""

import os
import re
import subprocess

import symbols
from harness import LIBRARY, PATIENCE_SECONDS, Case, target
from heap_v2 import Dump

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
KI, MI = 1 << 10, 1 << 20

# How messages of the process begin, as jemalloc's do: scripts look for it.
SAYS = "<jemalloc>: "
# Of heaptap's own lines on the stderr that it shares with the program.
_COLLECTOR_LINE = re.compile(r'^(heaptap: |<heaptap>: Leak approximation|<heaptap>: Run jeprof --|\{"books")')
# jeprof's table: flat, flat %, running %, cumulative, cumulative %, name.
_ROW = re.compile(r"^\s*(-?\d+)\s+(-?[\d.]+)%\s+(-?[\d.]+)%\s+(-?\d+)\s+(-?[\d.]+)% (.*)$")
_THREAD = re.compile(r"^  t(\d+): \d+: \d+ \[\d+: \d+\](?: (.*))?$")


class Walkthrough(Case):
    def tearDown(self):
        super().tearDown()
        self.assertEqual(self.leftovers(), [])

    def leftovers(self):
        """Files that an allocator or a collector should have renamed or removed."""
        known = re.compile(r"\.(heap|prof|pdf)(\.\d+)?$|^\.std(err|out)\.")
        return [os.path.join(where, name) for where, _, files in os.walk(self.folder) for name in files
                if not known.search(name)]


class OnJemalloc(Walkthrough):
    """Programs under Debian's jemalloc. It is linked with libstdc++, whose start allocates one block of 72704 bytes
    (class 81920), so one call path more than the program's own."""

    needs_bpf = False
    library = JEMALLOC
    noise_objects, noise_bytes, noise_contexts = 1, 81920, 1
    noise_functions = {"_dl_init", "_dl_start_user", "call_init"}

    def start(self, *command, conf="", env=None, **options):
        """A program with this MALLOC_CONF from its first allocation; `talks` as in harness.Process."""
        env = dict(env or {}, LD_PRELOAD=self.library, MALLOC_CONF=conf)
        return self.program(*command, env=env, **options)

    def shell(self, line, **options):
        """A command line as a document has it, but for the path of the library."""
        return self.program("sh", "-c", line, **options)


class OnHeaptap(Walkthrough):
    """The same under heaptap, recorded by `heaptap run`, whose own final dumps are named collector.*."""

    library = LIBRARY
    noise_objects, noise_bytes, noise_contexts = 0, 0, 0
    noise_functions = frozenset()

    def start(self, *command, conf="", env=None, **options):
        return self.heaptap("run", "-o", "collector", "--", *command, env=dict(env or {}, MALLOC_CONF=conf), **options)

    def shell(self, line, **options):
        return self.heaptap("run", "-o", "collector", "--", "sh", "-c", line, **options)


class Steering:
    """Mixed into tests that drive tests/targets/steered.c."""

    def steered(self, conf, **options):
        process = self.start(target("steered"), conf=conf, talks=True, **options)
        process.target_pid = int(process.answer().split()[1])
        return process

    def assert_answers(self, process, *pairs):
        """(command, answer) one after the other."""
        for command, expected in pairs:
            self.assertEqual(process.ask(command), expected, f"{command}; stderr:\n{process.stderr()}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def dump_named(self, name):
        dump = Dump(self.path(name))
        dump.check()
        return dump

    def own_dumps(self, kind=None):
        """The process's, not the collector's."""
        return [dump for dump in self.dumps(kind=kind) if dump.prefix != "collector"]

    def names_of_dumps(self):
        return [os.path.basename(dump.path) for dump in self.own_dumps()]


def held(dump, function):
    """Live objects and bytes on call paths through a function."""
    stacks = symbols.stacks_through(dump, function)
    return sum(stack.total.objects for stack in stacks), sum(stack.total.bytes for stack in stacks)


def thread_names(path):
    """{uid: name} of the lines at the head of a dump; None where there is no name."""
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
    """What the program and its allocator said on stderr."""
    return [line for line in process.stderr().splitlines() if line and not _COLLECTOR_LINE.match(line)]


def table(text):
    """{name: (flat, cumulative)} of jeprof --text --show_bytes."""
    rows = [match.groups() for match in map(_ROW.match, text.splitlines()) if match]
    return {name: (int(flat), int(cumulative)) for flat, _, _, cumulative, _, name in rows}


def total(text):
    """Bytes in jeprof's first line."""
    return int(re.search(r"^Total: (-?\d+) B$", text, re.MULTILINE).group(1))


def jeprof(case, *arguments, status=0):
    """jeprof's stdout, as bytes (a PDF is no text)."""
    env = {"PATH": os.environ["PATH"], "HOME": case.folder, "JEPROF_TMPDIR": case.folder, "LC_ALL": "C.UTF-8"}
    result = subprocess.run(["jeprof", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=case.folder,
                            env=env, timeout=2 * PATIENCE_SECONDS, check=False)
    case.assertEqual(result.returncode, status, result.stderr.decode(errors="replace"))
    return result.stdout


def jeprof_table(case, *arguments):
    """The table of a profile, and its total."""
    text = jeprof(case, "--text", "--show_bytes", *arguments).decode()
    return table(text), total(text)


def text_of_pdf(path):
    """Number of pages of a PDF and its text, by ghostscript."""
    pages = subprocess.run(["gs", "-q", "-dNODISPLAY", "-dNOSAFER", "-c",
                            f"({path}) (r) file runpdfbegin pdfpagecount = quit"],
                           stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    text = subprocess.run(["gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=txtwrite", "-sOutputFile=-", path],
                          stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    return int(pages), text
