# SPDX-License-Identifier: Apache-2.0
"""What other users notice of an attack: a process with a known profile, and clients that ask the daemon about it."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from dumping import give_patience
from harness import HEAPTAP, PATIENCE_SECONDS, environment, target
from heap_v2 import Dump

# The user "daemon".
INNOCENT_ID = 1
INNOCENT = {"user": INNOCENT_ID, "group": INNOCENT_ID, "extra_groups": []}

# Between two questions. A profile takes a millisecond or two of its user's account, which is a tenth of the time.
PAUSE_SECONDS = 0.05

# Of a process that would be confused if nobody read its answer.
_ENDLESS_SECONDS = 10 * PATIENCE_SECONDS

_OK = 200
_NO_ANSWER = 0

# Requests a page again and again, each time over a new connection, but not between the lines "stop" and "go" of its input.
# Another line is a time (CLOCK_MONOTONIC): it prints when it asked since then, how long the answer took, and its status. The
# last one may still be open.
_CLIENT = f"""
import http.client, json, socket, sys, threading, time

path, page = sys.argv[1:]
answers = []
turn = threading.Lock()

def ask():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout({PATIENCE_SECONDS})
        try:
            connection.connect(path)
            connection.sendall(f"GET {{page}} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n".encode())
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            return {_NO_ANSWER}

def ask_again_and_again():
    while True:
        with turn:
            begin = time.monotonic()
            answers.append([begin, None, {_NO_ANSWER}])
            status = ask()
            answers[-1] = [begin, time.monotonic() - begin, status]
        time.sleep({PAUSE_SECONDS})

threading.Thread(target=ask_again_and_again, daemon=True).start()
for line in sys.stdin:
    if line == "stop\\n":
        turn.acquire()
        print("stopped", flush=True)
    elif line == "go\\n":
        turn.release()
        print("goes on", flush=True)
    else:
        print(json.dumps([one for one in answers if one[0] >= float(line)]), flush=True)
"""


class Answers:
    """Answers to one question. One that comes after PATIENCE_SECONDS is none."""

    def __init__(self, found):
        self.seconds = [seconds for _, seconds, _ in found]
        self.refused = sum(status != _OK or seconds > PATIENCE_SECONDS for _, seconds, status in found)
        self.median = statistics.median(self.seconds) if found else float("inf")
        self.longest = max(self.seconds, default=float("inf"))

    def text(self):
        if not self.seconds:
            return "none"
        text = f"{1000 * self.median:.0f}/{1000 * self.longest:.0f}"
        return f"{text} ({self.refused} of {len(self.seconds)} refused)" if self.refused else text


class Question:
    """A question that somebody asks again and again, from now on, but not during a `with`. `found(since)` returns what was
    asked since then: time, seconds (None: no answer yet) and status; stop() returns after the last answer."""

    def __init__(self, found, stop, go):
        self._found, self._stop, self._go = found, stop, go

    def __enter__(self):
        self._stop()
        return self

    def __exit__(self, *_):
        self._go()

    def end(self):
        """A program ends with its test."""

    def between(self, begin, end):
        """What was asked in this time. An answer that is still open has lasted until now."""
        now = time.monotonic()
        return Answers([(asked, now - asked if seconds is None else seconds, status)
                        for asked, seconds, status in self._found(begin) if asked < end])

    def answered(self, begin):
        """How many of those that were asked since `begin` have an answer."""
        return sum(seconds is not None for _, seconds, _ in self._found(begin))

    def last_bad(self, begin, most):
        """When the last answer ended, of those that were asked since `begin`, that was refused or took longer than `most`
        seconds; `begin` if there was none, None if it has not ended."""
        bad = [(asked, seconds) for asked, seconds, status in self._found(begin)
               if status != _OK and seconds is not None or (seconds or time.monotonic() - asked) > most]
        if any(seconds is None for _, seconds in bad):
            return None
        return max((asked + seconds for asked, seconds in bad), default=begin)


def asked_by_client(lab, daemon, page):
    process = lab.program(sys.executable, "-c", _CLIENT, daemon.socket, page, talks=True, **INNOCENT)
    return Question(lambda since: json.loads(process.ask(str(since))), lambda: process.ask("stop", _ENDLESS_SECONDS),
                    lambda: process.ask("go"))


class AskedByThread(Question):
    def __init__(self, ask):
        self._turn = threading.Lock()
        super().__init__(lambda since: [one for one in list(self._answers) if one[0] >= since], self._turn.acquire,
                         self._turn.release)
        self._ask = ask
        self._answers = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._is_over.wait(PAUSE_SECONDS):
            with self._turn:
                begin = time.monotonic()
                self._answers.append((begin, None, _NO_ANSWER))
                status = _NO_ANSWER
                with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
                    self._ask()
                    status = _OK
                self._answers[-1] = (begin, time.monotonic() - begin, status)

    def end(self):
        self._is_over.set()
        self._thread.join()


class Innocent:
    """Keeps some more blocks at each question. Its profile is exact if each of them is in it, and no other."""

    BLOCKS, BYTES = 10, 1000

    def __init__(self, lab, daemon):
        self._folder = lab.path("innocent")
        os.mkdir(self._folder)
        os.chown(self._folder, INNOCENT_ID, INNOCENT_ID)
        self.process = lab.preloaded(target("puppet"), talks=True, cwd=self._folder, **INNOCENT,
                                     env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"})
        self.process.answer()
        # The bounds of an attack decide, not the library's patience.
        give_patience(self.process.pid)
        self._daemon = daemon
        self._times = 0
        self._keep()
        daemon.wait_listed(self.process.pid)
        self._first = Dump(self.dump()).total

    def _keep(self):
        self.process.ask(f"keep {self.BLOCKS} {self.BYTES}")
        self._times += 1

    def path(self, name):
        return os.path.join(self._folder, name)

    def dump(self, name="client"):
        """Its owner runs `heaptap dump`; returns the dump's path."""
        path = self.path(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        subprocess.run([HEAPTAP, "dump", str(self.process.pid), "-o", path, "--socket", self._daemon.socket],
                       env=environment(self._folder), cwd=self._folder, timeout=PATIENCE_SECONDS, check=True, **INNOCENT,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return path

    def own_dump(self):
        """It keeps blocks and asks for a dump itself."""
        self._keep()
        answer = self.process.ask(f"write string prof.dump {self.path('own')}", _ENDLESS_SECONDS)
        assert answer == "0", f"the innocent process gets errno {answer} instead of its dump"

    def losses(self):
        """Its losses by reason, as the daemon counts them."""
        pid = f'pid="{self.process.pid}"'
        return {name: count for name, count in self._daemon.metrics().items()
                if name.startswith("heaptap_events_lost_total{") and pid in name and count}

    def end(self):
        self.process.popen.kill()

    def why_not_exact(self):
        """None if the profile is exact. Nobody else may use the process meanwhile."""
        try:
            dump = Dump(self.dump("exact"))
        except (OSError, subprocess.SubprocessError) as error:
            return f"no dump: {error}; {getattr(error, 'stdout', None)}"
        dump.check()
        live = dump.total
        unknown = [hex(frame) for stack in dump.stacks for frame in stack.frames if dump.mapping(frame) is None]
        if unknown:
            return f"no library at {unknown[0]}"
        warnings = [text for text in dump.warnings if "mapping events lost" not in text]
        if warnings:
            return warnings[0]
        objects = (self._times - 1) * self.BLOCKS
        found = live.objects - self._first.objects
        # The allocator chooses the size class of BYTES.
        size = (live.bytes - self._first.bytes) / (objects or 1)
        is_exact = found == objects and (objects == 0 or self.BYTES <= size < self.BYTES * 1.25)
        return None if is_exact else f"{found} of {objects} blocks, {size:.0f} bytes each"
