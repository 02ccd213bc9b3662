# SPDX-License-Identifier: Apache-2.0
"""What every end-to-end test stands on: folders, processes with bounds, heaptap sessions, and after each test the
books of every session and the form of every dump.

Nothing here sleeps and hopes: wait_until() polls a condition and fails when its bound is over.
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
import unittest

import books
from heap_v2 import Dump

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
# Another build of it, if the caller says so.
HEAPTAP = os.environ.get("HEAPTAP") or os.path.join(BUILD, "heaptap")
LIBRARY = os.path.join(BUILD, "libheaptap.so")
TARGETS = os.path.join(BUILD, "tests", "targets")

# A bound for anything that takes milliseconds, generous because the machine is shared.
PATIENCE_SECONDS = 60


def target(name):
    return os.path.join(TARGETS, name)


def wait_until(condition, what, seconds=PATIENCE_SECONDS):
    """The first true value of condition(); an error that names `what` when the bound is over."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.01)


def become_subreaper():
    """Daemons and orphans of the tests become children of this process, so that none is left behind."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def reap_all():
    """Ends every process below this one that a test left running."""
    while True:
        children = _children()
        if not children:
            return
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


@functools.lru_cache(maxsize=None)
def why_no_bpf():
    """None if heaptap can record here; else what is missing, as its doctor says."""
    if not os.path.exists(HEAPTAP):
        return f"{HEAPTAP} is not built"
    doctor = subprocess.run([HEAPTAP, "doctor"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=PATIENCE_SECONDS, check=False)
    missing = [line for line in doctor.stdout.splitlines() if not line.startswith("ok ")]
    return None if doctor.returncode == 0 else "\n".join(missing)


class Process:
    """A program of a test. stderr goes to a file; stdin and stdout are pipes if `talks`, else stdout is a file."""

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
        """The exit status, negative for a signal, as subprocess has it."""
        if self.popen.stdin and not self.popen.stdin.closed:
            try:
                self.popen.stdin.close()
            except BrokenPipeError:
                pass
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command} did not end in {seconds} s; stderr:\n{self.stderr()}") from None

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
        """Waits for the count-th match of a pattern on stderr, and gives that match."""
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
        """Gives a program that talks one line."""
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def ask(self, line, seconds=PATIENCE_SECONDS):
        self.tell(line)
        return self.answer(seconds)


def environment(folder, changes=None):
    """The same for every program of a test: nothing of the caller's but PATH (and what sanitizers read). A change to None takes a name out."""
    result = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": folder, "LC_ALL": "C.UTF-8", "TZ": "UTC",
              "JEPROF_TMPDIR": folder}
    # For a build with sanitizers.
    result.update({name: value for name, value in os.environ.items() if name in ("ASAN_OPTIONS", "UBSAN_OPTIONS")})
    result.update(changes or {})
    return {name: value for name, value in result.items() if value is not None}


class Session(Process):
    """A running heaptap. Its books are checked after the test, unless `records` is False (it had nothing to record)."""

    def __init__(self, arguments, folder, **options):
        self.records = True
        self.losses_allowed = ()
        binary = options.pop("binary", HEAPTAP)
        before = options.pop("before", [])
        super().__init__([*before, binary, *arguments], folder, **options)

    def lines(self):
        """What it said, without the books."""
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
            books.check(entry, self.losses_allowed)


class DumpName:
    """<prefix>.<pid>.<seq>.<kind><number>.heap, taken apart."""

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


class Case(unittest.TestCase):
    """A test with a folder of its own that is removed after it. Needs eBPF unless its class says otherwise."""

    needs_bpf = True

    def setUp(self):
        if self.needs_bpf:
            why = why_no_bpf()
            if os.environ.get("HEAPTAP_SKIP_BPF") == "1":
                self.skipTest(f"HEAPTAP_SKIP_BPF=1 asks for it ({why or 'eBPF is permitted here'})")
            if why is not None:
                self.fail(f"needs eBPF, which heaptap cannot use here (HEAPTAP_SKIP_BPF=1 skips the test):\n{why}")
        self.folder = tempfile.mkdtemp(prefix="heaptap-e2e.")
        os.chmod(self.folder, 0o755)  # for programs that run as another user
        self.sessions = []
        if os.environ.get("HEAPTAP_KEEP") == "1":
            print(f"        {self.id()} in {self.folder}")
        else:
            self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(reap_all)

    def tearDown(self):
        for session in self.sessions:
            session.check()
        for dump in self.dumps():
            dump.read().check()

    # --- programs ---

    def heaptap(self, *arguments, **options):
        """Starts heaptap; `run` and `attach` print their books."""
        arguments = [str(argument) for argument in arguments]
        if arguments and arguments[0] in ("run", "attach"):
            arguments.insert(1, "--books")
        session = Session(arguments, self.folder, **options)
        self.sessions.append(session)
        return session

    def program(self, *command, **options):
        return Process([str(word) for word in command], self.folder, **options)

    def puppet(self, *wrapper, **options):
        """A puppet (tests/targets/puppet.c), alone or under another command; waits until it is ready."""
        process = self.program(*wrapper, target("puppet"), talks=True, **options)
        process.target_pid = int(process.answer().split()[1])
        return process

    def puppet_under_heaptap(self, *arguments, **options):
        session = self.heaptap("run", *arguments, "--", target("puppet"), talks=True, **options)
        session.target_pid = int(session.answer().split()[1])
        return session

    def preloaded_puppet(self, **options):
        env = dict(options.pop("env", {}), LD_PRELOAD=LIBRARY)
        return self.puppet(env=env, **options)

    def attach(self, pid, *arguments, **options):
        """Attaches, and waits until it records."""
        session = self.heaptap("attach", "-p", pid, *arguments, **options)
        session.wait_said(rf"^heaptap: attached to {pid} \(")
        return session

    def reader(self, *command):
        """Output of a program that reads dumps (jeprof, google-pprof), both streams."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                env=environment(self.folder), timeout=PATIENCE_SECONDS * 2, check=False)
        self.assertEqual(result.returncode, 0, result.stdout)
        return result.stdout

    # --- what they left ---

    def dumps(self, pid=None, kind=None, folder=None):
        """Names of dumps below the test's folder, by process and sequence."""
        found = []
        for where, _, files in os.walk(folder or self.folder):
            found += [DumpName(os.path.join(where, name)) for name in files if name.endswith(".heap")]
        return sorted((dump for dump in found if pid in (None, dump.pid) and kind in (None, dump.kind)),
                      key=lambda dump: (dump.prefix, dump.pid, dump.sequence))

    def dump_paths(self):
        return [dump.path for dump in self.dumps()]

    def only_dump(self, pid=None, kind=None):
        found = self.dumps(pid, kind)
        self.assertEqual(len(found), 1, [dump.path for dump in found])
        return found[0].read()

    def assert_one_clear_line(self, session, status, *words):
        """Bad input: this exit status, and one line on stderr, ours, that contains the words."""
        session.records = False
        self.assertEqual(session.wait(), status, session.stderr())
        lines = session.lines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"^heaptap: ")
        for word in words:
            self.assertRegex(lines[0], word)
