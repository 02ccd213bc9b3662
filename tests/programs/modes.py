# SPDX-License-Identifier: Apache-2.0
"""The modes in which a program is run, and the checks besides its output."""

import os
import re
import shutil

import guests
import harness
from program import PATH
from programs import Profiled

# Far more samples than by default.
LG_SAMPLE = "12"
# Ends of stacks, from %warn lines of dumps, that a table would have prevented.
CUT = re.compile(r"heaptap: (\d+) samples? whose outer frames are missing: (?:its stack ends|their stacks end) at "
                 r"(?:an unwind table not loaded yet|the end of the raw stack's copy)")
RUN_OPTIONS = {"run": ["--lg-sample", LG_SAMPLE], "exact": ["--exact"], "guest exact": ["--exact"]}
MODES = ["plain", "preloaded", "run", "exact"]
# With libheaptap-guest.so over an allocator; plain is this allocator alone.
GUEST_MODES = ["plain", "guest", "guest exact"]


class Mode:
    """Starts the commands of one run of a program. `place` is a folder with heaptap and its library that every user may
    read, and a folder of guests.place(). `host`: the allocator below the guest, of guests.HOSTS."""

    def __init__(self, name, folder, place, host="glibc"):
        self.name = name
        self._host = guests.HOSTS[host]
        self._folder = os.path.join(folder, "streams")
        self._place = place
        self._prefix = os.path.join(folder, "profile", "p")
        for path in (self._folder, os.path.dirname(self._prefix)):
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path)
        self._sessions = []

    def start(self, command, env=None, **options):
        env = {"PATH": PATH, **(env or {})}
        heaptap = f"{self._place}/heaptap"
        if self._host:
            env["LD_PRELOAD"] = self._host
        if self.name == "preloaded":
            env["LD_PRELOAD"] = f"{self._place}/libheaptap.so"
        elif self.name == "guest":
            env["LD_PRELOAD"] = f"{guests.library(self._place)} {self._host}".strip()
        elif self.name == "guest exact":
            heaptap = os.path.join(os.path.dirname(guests.library(self._place)), "heaptap")
        if self.name not in RUN_OPTIONS:
            return Started(harness.Process(command, self._folder, env=env, **options))
        arguments = ["run", "--books", *RUN_OPTIONS[self.name], "-o", self._prefix, "--", *command]
        session = harness.Session(arguments, self._folder, binary=heaptap, env=env, **options)
        self._sessions.append(session)
        return Profiled(session)

    def check(self):
        """Errors of the recording, and notes: texts."""
        if self.name not in RUN_OPTIONS:
            return [], []
        wrong, notes = [], []
        dumps = harness.find_dumps(os.path.dirname(self._prefix))
        warnings = [warning for dump in dumps for warning in _warnings(dump.path)]
        cut = sum(int(match.group(1)) for match in map(CUT.match, warnings) if match)
        all_books = [books for session in self._sessions for books in session.books()]
        if cut:
            samples = sum(books["samples_allocated"] for books in all_books)
            wrong.append(f"{cut} of {samples} stacks cut")
        if not dumps:
            wrong.append("no dump")
        if not all(books["balanced"] for books in all_books):
            wrong.append("books do not balance")
        notes += sorted(set(re.sub(r"\d+ ", "# ", warning) for warning in warnings if not CUT.match(warning)))
        return wrong, notes + [warning for warning in warnings if CUT.match(warning)]


class Started:
    """A process with a status like a shell's, the same as from heaptap run."""

    def __init__(self, process):
        self._process = process
        self.signal = process.signal
        self.alive = process.alive
        self.stdout = process.stdout
        self.stderr = process.stderr

    def wait(self, *bound):
        status = self._process.wait(*bound)
        return status if status >= 0 else 128 - status


def _warnings(path):
    """The %warn lines at the beginning of a dump."""
    result = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.startswith("%warn "):
                break
            result.append(line[len("%warn "):].rstrip("\n"))
    return result
