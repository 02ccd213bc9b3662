# SPDX-License-Identifier: Apache-2.0
"""heaptap daemon in tests: a recording in its own folders, which outlives its collectors.

A collector may be killed, stopped and restarted. After the test the recording is ended, nothing of it may be left in the
kernel, and the books that its collectors printed must balance.
"""

import collections
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess

import books
from harness import (HEAPTAP, PATIENCE_SECONDS, PLACE, Session, environment, find_dumps, only_dump, spared,
                     wait_until)

BPF_FOLDER = "/sys/fs/bpf"
_numbers = itertools.count()

# For programs whose first allocation must be recorded with --exact: where eBPF may not write to processes (kernel
# lockdown), the daemon's rate reaches them a little later.
EXACT = {"MALLOC_CONF": "lg_prof_sample:0"}

# A user other than root.
NOBODY_ID = 65534
NOBODY = {"user": NOBODY_ID, "group": NOBODY_ID, "extra_groups": []}

# The answer to an HTTP request. Names of headers are in lower case.
Answer = collections.namedtuple("Answer", "status headers body")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, seconds):
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Daemon:
    """A recording. `process` is its latest collector, a Session; there is none before start().

    It records the processes of this place only, unless it is for `everyone`. `arguments` are for every collector.
    `losses_allowed` names the losses that a test provokes. With `has_books` it prints the books of each process at its end, for
    which it reads all tallies.
    """

    def __init__(self, folder, *arguments, losses_allowed=(), everyone=False, has_books=True, **options):
        number = next(_numbers)
        self.folder = os.path.join(folder, f"daemon{number}")
        os.mkdir(self.folder)
        self.state_folder = os.path.join(self.folder, "state")
        self.socket = os.path.join(self.folder, "socket")
        self.pin_folder = f"{BPF_FOLDER}/heaptap-test-{os.getpid()}-{number}"
        self.losses_allowed = losses_allowed
        # Its collectors outlive a test.
        self.is_shared = False
        self._arguments = [*([] if everyone else ["--cgroup", PLACE.group]), *(["--books"] if has_books else []),
                           *map(str, arguments)]
        self._options = options
        self._collectors = []
        self.configuration = os.path.join(self.folder, "heaptap.conf")
        with open(self.configuration, "w", encoding="ascii"):
            pass

    # --- its collectors ---

    @property
    def process(self):
        return self._collectors[-1]

    def command(self, *more):
        return ["daemon", "--config", self.configuration, "--state-dir", self.state_folder,
                "--socket", self.socket, "--pin-dir", self.pin_folder, *self._arguments, *map(str, more)]

    def launch(self, *more, **options):
        """Starts a collector without waiting for it to record. `more` arguments and `options` are for this one only."""
        collector = Session(self.command(*more), self.folder, **{**self._options, **options})
        self._collectors.append(collector)
        if self.is_shared:
            spared.add(collector.pid)
        return collector

    def start(self, *more):
        self.launch(*more).wait_said(r"^heaptap: recording; ")

    def kill(self):
        self.process.signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL

    def stop(self, number=signal.SIGTERM):
        """Ends the collector; with SIGTERM the recording continues."""
        self.process.signal(number)
        assert self.process.wait() == 0, self.process.stderr()

    def restart(self):
        self.kill()
        self.start()

    def books(self):
        """The books that its collectors closed, in that order."""
        return [entry for collector in self._collectors for entry in collector.books()]

    def wait_said(self, pattern, **options):
        return self.process.wait_said(pattern, **options)

    # --- its clients ---

    def client(self, *arguments, says=""):
        """Runs a client command, which must succeed. Returns its output. `says`: a pattern of its standard error."""
        result = subprocess.run([HEAPTAP, *map(str, arguments), "--socket", self.socket],
                                capture_output=True, text=True, cwd=self.folder, env=environment(self.folder),
                                timeout=PATIENCE_SECONDS, check=False)
        assert result.returncode == 0 and re.fullmatch(says, result.stderr), f"heaptap {arguments}: {result.stderr}"
        return result.stdout

    def processes(self):
        """The recorded processes by PID, from heaptap list --json, with all that they have done so far."""
        self.settle()
        return self.listed()

    def listed(self):
        """The same as of a moment ago, where others keep the collector busy, so that it never settles."""
        return {entry["pid"]: entry for entry in json.loads(self.client("list", "--json"))["processes"]}

    def ended(self):
        """Ended processes, the latest first."""
        self.settle()
        return json.loads(self.client("list", "--ended", "--json"))["ended"]

    def row(self, pid):
        """The line of a process in `heaptap list`, by column."""
        head, *rows = (line.split() for line in self.client("list").splitlines())
        (row,) = [row for row in rows if row[0] == str(pid)]
        return dict(zip(head, row))

    def saved_pids(self):
        """PIDs of the processes whose mappings are saved for the next collector."""
        pids = set()
        folder = os.path.join(self.state_folder, "recording")
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    pids.add(json.load(file).get("pid"))
        return pids

    def settle(self):
        """Returns when all that has happened to processes so far is in the books, the tables and the history."""
        def is_settled():
            answer = self.request("POST", "/settle")
            # It took more than ten seconds, on a busy machine.
            assert answer.status in (200, 503), answer.body
            return answer.status == 200
        wait_until(is_settled, "the collector has settled")

    def wait_recorded(self, pid):
        """Waits until a process has used its allocator, and all that it did is in the books; returns its entry."""
        return wait_until(lambda: self.processes().get(pid), f"{pid} is recorded")

    def wait_listed(self, pid):
        """The same, from listed()."""
        return wait_until(lambda: self.listed().get(pid), f"{pid} is recorded")

    def wait_ended(self, pid):
        """Waits until a process is among the ended ones; returns its entry."""
        return wait_until(lambda: next((entry for entry in self.ended() if entry["pid"] == pid), None),
                          f"process {pid} is among the ended ones")

    def dump(self, pid, path):
        self.client("dump", pid, "-o", path)

    def request(self, method, path, body=None, headers=None, seconds=PATIENCE_SECONDS):
        connection = UnixConnection(self.socket, seconds)
        try:
            # A daemon that refuses a connection answers and closes it without reading the request.
            with contextlib.suppress(BrokenPipeError):
                connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()},
                          response.read())
        finally:
            connection.close()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def metrics(self):
        """The samples of /metrics, by name and labels."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer.body
        lines = answer.body.decode().splitlines()
        return {name: float(value) for name, value in
                (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    # --- its dumps, and its configuration file ---

    def dumps(self, pid=None, kind=None):
        return find_dumps(self.state_folder, pid, kind)

    def only_dump(self, pid=None, kind=None):
        return only_dump(self.state_folder, pid, kind)

    def wait_dumps(self, number, **which):
        """Waits for dumps, which get their names when they are complete."""
        return wait_until(lambda: len(self.dumps(**which)) >= number and self.dumps(**which), f"{number} dumps {which}")

    def reload(self, *lines, said="reloaded rules, rates, "):
        """Replaces the configuration and makes the daemon read it."""
        with open(self.configuration, "w", encoding="ascii") as file:
            file.write("".join(line + "\n" for line in lines))
        times = self.process.stderr().count(said)
        self.process.signal(signal.SIGHUP)
        self.wait_said(said, count=times + 1)

    # --- its end ---

    def end(self):
        """Ends the recording, in any state, and checks that it leaves nothing but balanced books."""
        if self._collectors and self.process.alive():
            self.stop()
        # A test of wrong rules may have left some.
        with open(self.configuration, "w", encoding="ascii"):
            pass
        end = Session(self.command("--end"), self.folder, **self._options)
        try:
            end.ends()
            assert not os.path.exists(self.pin_folder), os.listdir(self.pin_folder)
        finally:
            # Otherwise its probes would disturb all later tests.
            shutil.rmtree(self.pin_folder, ignore_errors=True)
        for entry in self.books():
            books.check(entry, self.losses_allowed)
