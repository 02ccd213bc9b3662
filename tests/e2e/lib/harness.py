# SPDX-License-Identifier: Apache-2.0
"""Programs and heaptap sessions of tests, with time limits, and the names of dumps.

Nothing here sleeps for a fixed time: wait_until() polls a condition and fails at its time limit.
"""

import ctypes
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import zlib

import books
from heap_v2 import Dump
from place import Place

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
BUILD = os.path.join(ROOT, "build")

# Where heaptap, its library and the targets are taken from; see own_copy().
_WORKER = os.environ.get("PYTEST_XDIST_WORKER")
_PLACE = os.path.join(BUILD, "e2e", _WORKER) if _WORKER else BUILD
_BUILT_TARGETS = os.path.join(BUILD, "tests", "targets")
TARGETS = os.path.join(_PLACE, "targets") if _WORKER else _BUILT_TARGETS
# Another build, if the caller sets it.
_BUILT = os.environ.get("HEAPTAP") or os.path.join(BUILD, "heaptap")
HEAPTAP = os.path.join(_PLACE, "heaptap") if _WORKER else _BUILT
LIBRARY = os.path.join(_PLACE, "libheaptap.so")
GUEST = os.path.join(_PLACE, "libheaptap-guest.so")

# Where tests of this process have their programs; the names of their folders begin with FOLDER.
FOLDER = f"heaptap-e2e.{os.getpid()}."
# The namespaces and the control group of this process; conftest.py enters it.
PLACE = Place(ROOT)

# Debian's: it has a compiled pprof. Newer versions of Go compile it first, which takes a minute of processor time.
GO_PPROF = ("/usr/bin/go", "tool", "pprof")

# A factor for all time limits, for slow machines such as emulated ones.
TIME_SCALE = float(os.environ.get("HEAPTAP_TIME_SCALE", "1"))
# A limit for anything that takes milliseconds; generous, because the machine is shared.
PATIENCE_SECONDS = 60 * TIME_SCALE
# Gives endurance tests their full time.
LONG = os.environ.get("HEAPTAP_LONG") == "1"


def own_copy():
    """Gives this process its own copies of the files that have probes: a session listens to all processes on its
    library's file, and tests run in parallel."""
    if not _WORKER:
        return
    shutil.rmtree(_PLACE, ignore_errors=True)
    os.makedirs(_PLACE)
    os.link(_BUILT, HEAPTAP)
    for library in (LIBRARY, GUEST):
        shutil.copy(os.path.join(BUILD, os.path.basename(library)), library)
    shutil.copytree(_BUILT_TARGETS, TARGETS, symlinks=True, ignore=shutil.ignore_patterns("*.o", "*.d"))


def target(name):
    return os.path.join(TARGETS, name)


def wait_until(condition, what, seconds=PATIENCE_SECONDS):
    """Returns the first true value of condition(); fails with `what` at the time limit."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.01)


def become_subreaper():
    """Makes daemons and orphans of the tests children of this process, so that none is left behind."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


# Children that outlive a test: the collectors of shared daemons.
spared = set()


def reap_all():
    """Ends every descendant that a test left running."""
    while children := [child for child in _children() if child not in spared]:
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


@functools.lru_cache(maxsize=None)
def why_no_bpf():
    """None if heaptap can record here; otherwise the doctor's findings."""
    if not os.path.exists(HEAPTAP):
        return f"{HEAPTAP} is not built"
    doctor = subprocess.run([HEAPTAP, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=PATIENCE_SECONDS, check=False)
    missing = [line for line in doctor.stdout.splitlines() if not line.startswith("ok ")]
    return None if doctor.returncode == 0 else "\n".join(missing)


class Process:
    """A program of a test. stderr goes to a file; stdin and stdout are pipes if `talks`, otherwise stdout is a file."""

    def __init__(self, command, folder, talks=False, env=None, **options):
        self.command = command
        descriptor, self.error_path = tempfile.mkstemp(prefix=".stderr.", dir=folder)
        self.output_path = self.error_path.replace(".stderr.", ".stdout.")
        self._pending = b""
        options.setdefault("cwd", folder)
        with open(self.output_path, "wb") as output:
            self.popen = subprocess.Popen(
                command, env=environment(folder, env), stderr=descriptor,
                stdin=subprocess.PIPE if talks else options.pop("stdin", subprocess.DEVNULL),
                stdout=subprocess.PIPE if talks else output, start_new_session=True, **options)
        os.close(descriptor)

    @property
    def pid(self):
        return self.popen.pid

    def wait(self, seconds=PATIENCE_SECONDS):
        """Waits for the exit status, negative for a signal as in subprocess."""
        if self.popen.stdin and not self.popen.stdin.closed:
            try:
                self.popen.stdin.close()
            except BrokenPipeError:
                pass
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} did not end in {seconds} s; stderr:\n{self.stderr()}") from None

    def ends(self, status=0, seconds=PATIENCE_SECONDS):
        """Asserts that it ends with this status."""
        assert self.wait(seconds) == status, f"{self.command} ended with {self.popen.returncode}:\n{self.stderr()}"

    def signal(self, number):
        os.kill(self.pid, number)

    def alive(self):
        return self.popen.poll() is None

    def stderr(self):
        with open(self.error_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stdout(self):
        with open(self.output_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_said(self, pattern, count=1, seconds=PATIENCE_SECONDS):
        """Waits for the count-th match of a pattern on stderr, and returns that match."""
        def search():
            matches = list(re.finditer(pattern, self.stderr(), re.MULTILINE))
            if len(matches) < count and not self.alive():
                matches = list(re.finditer(pattern, self.stderr(), re.MULTILINE))
                if len(matches) < count:
                    raise AssertionError(f"{self.command} ended without saying {pattern!r}:\n{self.stderr()}")
            return matches[count - 1] if len(matches) >= count else None
        return wait_until(search, f"{self.command} says {pattern!r}", seconds)

    def answer(self, seconds=PATIENCE_SECONDS):
        """The next line on stdout of a program that talks."""
        end = time.monotonic() + seconds
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self.popen.stdout], [], [], max(0, end - time.monotonic()))
            data = os.read(self.popen.stdout.fileno(), 65536) if ready else b""
            if not data:
                why = "ended" if ready else f"said nothing for {seconds} s"
                raise AssertionError(f"{self.command} {why}; stderr:\n{self.stderr()}")
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode()

    def tell(self, line):
        """Sends one line to a program that talks."""
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def ask(self, line, seconds=PATIENCE_SECONDS):
        self.tell(line)
        return self.answer(seconds)


def _seed():
    """The name of the test decides which allocations are samples, so that chance does not. Other users of this module
    have no seed."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return {"HEAPTAP_CONF": f"prof_seed:{zlib.crc32(name.encode()) | 1}"} if name else {}


def environment(folder, changes=None):
    """The environment of every program of a test: only the caller's PATH and sanitizer options, and a seed. A change to
    None removes a variable."""
    result = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": folder, "LC_ALL": "C.UTF-8", "TZ": "UTC",
              "JEPROF_TMPDIR": folder, **_seed()}
    # For a build with sanitizers.
    result.update({name: value for name, value in os.environ.items() if name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")})
    result.update(changes or {})
    return {name: value for name, value in result.items() if value is not None}


class Session(Process):
    """A running heaptap. Its books are checked after the test, unless `records` is False (nothing to record)."""

    def __init__(self, arguments, folder, **options):
        self.records = True
        self.losses_allowed = ()
        # A process that heaptap attaches to began before.
        self._unseen = ("beginning",) if arguments[:1] == ["attach"] else ()
        binary = options.pop("binary", HEAPTAP)
        before = options.pop("before", [])
        super().__init__([*before, binary, *arguments], folder, **options)

    def lines(self):
        """Its stderr lines, without the books."""
        return [line for line in self.stderr().splitlines() if not line.startswith('{"books"')]

    def books(self):
        return books.read(self.stderr())

    def check(self):
        if self.alive():
            self.signal(signal.SIGTERM)
            self.wait()
        if self.popen.returncode == -signal.SIGKILL:
            return
        all_books = self.books()
        assert all_books or not self.records, f"{self.command} printed no books:\n{self.stderr()}"
        for entry in all_books:
            books.check(entry, (*self.losses_allowed, *self._unseen))


class DumpName:
    """A parsed name: <prefix>.<pid>.<seq>.<kind><number>.heap."""

    _NAME = re.compile(r"(.*)\.(\d+)\.(\d+)\.(?:(f)|([imu])(\d+))\.heap")

    def __init__(self, path):
        match = self._NAME.fullmatch(os.path.basename(path))
        assert match, f"not the name of a dump: {path}"
        self.path = path
        self.prefix, self.pid, self.sequence = match.group(1), int(match.group(2)), int(match.group(3))
        self.kind = match.group(4) or match.group(5)
        self.number = int(match.group(6)) if match.group(6) else None

    def read(self):
        return Dump(self.path)


def find_dumps(folder, pid=None, kind=None):
    """Names of dumps below a folder, by process and sequence."""
    found = [DumpName(os.path.join(where, name)) for where, _, files in os.walk(folder) for name in files
             if name.endswith(".heap")]
    return sorted((dump for dump in found if pid in (None, dump.pid) and kind in (None, dump.kind)),
                  key=lambda dump: (dump.prefix, dump.pid, dump.sequence))


def only_dump(folder, pid=None, kind=None):
    """Reads the only dump in a folder."""
    found = find_dumps(folder, pid, kind)
    assert len(found) == 1, [dump.path for dump in found]
    return found[0].read()
