# SPDX-License-Identifier: Apache-2.0
"""What an attack does to a daemon with the rights and limits of its systemd unit, and to an innocent process.

An Innocent is a process of another user with a known profile. A Service answers three questions again and again, first
in peace and then under attack: GET /healthz, `heaptap dump` of the innocent process, and the dump that the innocent
process asks for itself. A Control tells meanwhile how long everything takes on this machine. One row for each attack goes
to build/e2e/hostile.txt and hostile.json.
"""

import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import threading
import time

from daemons import NOBODY
from dumping import give_patience
from harness import BUILD, HEAPTAP, PATIENCE_SECONDS, TIME_SCALE, environment, target, wait_until
from heap_v2 import Dump
from unit import limit_self, memory_max, setting, with_its_capabilities

# The bounds that must hold under attack.
# Sanitizers keep freed memory, and shadows of all memory.
MOST_GROWTH_MIB = 256 * (8 if "/sanitized/" in HEAPTAP else 1)
# Attackers and other tests take processors from everyone. So each bound in seconds is for a machine that has one to
# spare, and grows by what a program that asks the collector nothing takes at the same time (Control), as many times as
# an answer or a start needs a processor. What waits for an attacker takes no longer for that: a stall is longer than the
# bound on any machine.
# One answer may meet a piece of the attack: a table of two million rows, a fork with 8,000 mappings.
LONGEST_SECONDS = 3 * TIME_SCALE
# The median of the answers. A collector that waits for hands at each question, until their time is over, takes half a
# second (userspace/worker/hands.h).
FAST_SECONDS = 0.3 * TIME_SCALE
ANSWER_TURNS = 5
RESTART_SECONDS = 5 * TIME_SCALE
# Attaching to all files that users may have takes about 12 s.
RECORDED_SECONDS = 20 * TIME_SCALE
START_TURNS = 100
# How long the memory of the service is watched at most when it answers no questions.
ATTACK_SECONDS = 20 * TIME_SCALE
QUESTIONS = 10
# So that the control itself takes little of the machine.
CONTROL_PAUSE_SECONDS = 0.1
MIB = 1 << 20
PREAD64 = 17  # asm/unistd_64.h; how hands read the memory of processes

# The user "daemon".
INNOCENT_ID = 1
INNOCENT = {"user": INNOCENT_ID, "group": INNOCENT_ID, "extra_groups": []}

_TABLE = os.path.join(BUILD, "e2e", "hostile")
_COLUMNS = ("healthz", "dump", "own dump")


class Succeeded(Exception):
    """The attack broke a bound."""


def demand(is_held, text):
    if not is_held:
        raise Succeeded(text)


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
        self.keep()
        daemon.wait_listed(self.process.pid)
        self._first = Dump(self.dump(PATIENCE_SECONDS)).total

    def keep(self):
        self.process.ask(f"keep {self.BLOCKS} {self.BYTES}")
        self._times += 1

    def path(self, name):
        return os.path.join(self._folder, name)

    def dump(self, seconds):
        """Its owner runs `heaptap dump`; returns the dump's path."""
        path = self.path("client")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        subprocess.run([HEAPTAP, "dump", str(self.process.pid), "-o", path, "--socket", self._daemon.socket],
                       env=environment(self._folder), cwd=self._folder, timeout=seconds, check=True, **INNOCENT,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return path

    def own_dump(self):
        """It asks for a dump itself."""
        answer = self.process.ask(f"write string prof.dump {self.path('own')}", PATIENCE_SECONDS)
        assert answer == "0", f"the innocent process gets errno {answer} instead of its dump"

    def why_not_exact(self):
        """None if the profile is exact."""
        try:
            dump = Dump(self.dump(PATIENCE_SECONDS))
        except (OSError, subprocess.SubprocessError):
            return "no dump"
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


def descendants(pid):
    pids = [pid]
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                pids += [one for child in file.read().split() for one in descendants(int(child))]
    return pids


def resident_mib(pid):
    """Of a process and its descendants; pages that several of them share count once (Pss)."""
    total = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError), open(f"/proc/{one}/smaps_rollup", encoding="ascii") as file:
            total += next((int(line.split()[1]) for line in file if line.startswith("Pss:")), 0)
    return total / 1024


class Answers:
    """Times of the answers to one question, in seconds. `failure` ended the asking."""

    def __init__(self):
        self.seconds = []
        self.failure = None

    def text(self):
        if not self.seconds:
            return "none"
        times = f"{1000 * statistics.median(self.seconds):.0f}/{1000 * max(self.seconds):.0f}"
        return times if self.failure is None else f"{times} then none"


class Control:
    """How long a program takes that asks the collector nothing: the same file, run by the same user, again and again
    while the body of a `with` lasts."""

    def __init__(self):
        self.seconds = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while True:
            begin = time.monotonic()
            subprocess.run([HEAPTAP, "--version"], check=True, stdout=subprocess.DEVNULL, **INNOCENT)
            self.seconds.append(time.monotonic() - begin)
            if self._is_over.wait(CONTROL_PAUSE_SECONDS):
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def allow(self, seconds, turns, of=max):
        """The bound of what may take `seconds` of a machine with a processor to spare."""
        return seconds + turns * of(self.seconds)

    def text(self):
        return f"{1000 * statistics.median(self.seconds):.0f}/{1000 * max(self.seconds):.0f}"


class Measurement:
    """Answers to the three questions; what a program took and the most memory that the service had meanwhile."""

    def __init__(self, answers, control, resident, charged):
        self.answers = answers
        self.control = control
        self.resident = resident
        self.charged = charged


class Service:
    """A daemon as the unit starts it, and the innocent process."""

    def __init__(self, lab, start_daemon, cgroup, subordinate_ids="", **options):
        """`subordinate_ids`: the contents of /etc/subuid for the daemon."""
        self.cgroup = cgroup
        table = lab.path("subuid")
        with open(table, "w", encoding="ascii") as file:
            file.write(subordinate_ids)

        def before_exec():
            cgroup.enter()
            limit_self()
        with_table = ["unshare", "--mount", "sh", "-c", f"mount --bind {table} /etc/subuid && exec \"$@\"", "sh"]
        self.daemon = start_daemon("--exact", before=[*with_table, *with_its_capabilities()], preexec_fn=before_exec,
                                   **options)
        # Users may reach the socket.
        os.chmod(self.daemon.folder, 0o755)
        self.innocent = Innocent(lab, self.daemon)
        self.quiet = None
        self._maps = 0

    @staticmethod
    def limit():
        return memory_max()

    def waits_for_a_page(self):
        """Whether a thread of the service reads a file and is in an uninterruptible wait (state D of proc(5))."""
        for pid in descendants(self.daemon.process.pid):
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/stat", encoding="utf-8") as file:
                        is_waiting = file.read().rpartition(")")[2].split()[0] == "D"
                    with open(f"/proc/{pid}/task/{task}/syscall", encoding="utf-8") as file:
                        if is_waiting and file.read().split()[0] == str(PREAD64):
                            return True
        return False

    # --- the questions ---

    def _healthz(self):
        assert self.daemon.get("/healthz", seconds=PATIENCE_SECONDS).body == b"ok\n"

    def _dump(self):
        self.innocent.dump(PATIENCE_SECONDS)

    def _own_dump(self):
        self.innocent.keep()
        self.innocent.own_dump()

    def measure(self, is_over=lambda: True):
        """Asks all questions at once, each QUESTIONS times and until is_over(), or until one gets no answer."""
        answers = {name: Answers() for name in _COLUMNS}

        def ask(question, into):
            while (not any(one.failure for one in answers.values()) and
                   (len(into.seconds) < QUESTIONS or not is_over())):
                begin = time.monotonic()
                try:
                    question()
                except (AssertionError, OSError, subprocess.SubprocessError, socket.timeout) as error:
                    into.failure = f"{type(error).__name__}: {str(error)[:200]}"
                into.seconds.append(time.monotonic() - begin)

        threads = [threading.Thread(target=ask, args=(question, answers[name]))
                   for name, question in zip(_COLUMNS, (self._healthz, self._dump, self._own_dump))]
        for thread in threads:
            thread.start()
        resident = charged = 0
        end = time.monotonic() + ATTACK_SECONDS
        with Control() as control:
            while any(thread.is_alive() for thread in threads) or (not is_over() and time.monotonic() < end):
                resident = max(resident, resident_mib(self.daemon.process.pid))
                charged = max(charged, self.cgroup.used() / MIB)
                time.sleep(0.1)
        return Measurement(answers, control, resident, charged)

    def measure_quiet(self):
        self.quiet = self.measure()
        for name, answers in self.quiet.answers.items():
            assert answers.failure is None, f"{name}: {answers.failure}"
        self._maps = self._map_mib()

    def _map_mib(self):
        """The kernel's memory for the books, which have bounds of their own (--map-size)."""
        return self.daemon.metrics().get("heaptap_kernel_memory_bytes", 0) / MIB

    def hold(self, attack, is_over=lambda: True):
        """Measures under attack, writes the row of the table, and asserts the bounds."""
        under = self.measure(is_over)
        exact = self.innocent.why_not_exact()
        row = {"attack": attack,
               **{name: [self.quiet.answers[name].text(), under.answers[name].text()] for name in _COLUMNS},
               "control": [one.control.text() for one in (self.quiet, under)],
               "resident MiB": [f"{one.resident:.0f}" for one in (self.quiet, under)],
               "charged MiB": [f"{one.charged:.0f}" for one in (self.quiet, under)],
               "innocent": exact or "exact"}
        _note(row)
        for name in _COLUMNS:
            answers, quiet = under.answers[name], self.quiet.answers[name]
            demand(answers.failure is None,
                   f"{name}: {answers.failure}\n{row}\nlast words: {self.daemon.process.lines()[-10:]}")
            longest, median = max(answers.seconds), statistics.median(answers.seconds)
            demand(longest < under.control.allow(LONGEST_SECONDS, ANSWER_TURNS), f"{name}: an answer took {longest:.2f} s\n{row}")
            fast = under.control.allow(FAST_SECONDS, ANSWER_TURNS, statistics.median)
            demand(median < max(fast, 2 * statistics.median(quiet.seconds)), f"{name}: {median:.3f} s\n{row}")
        demand(exact is None, exact)
        demand(self.daemon.process.alive(), "the collector has ended")
        maps = self._map_mib() - self._maps
        for what, before, now in (("charged besides the books", self.quiet.charged, under.charged - maps),
                                  ("resident", self.quiet.resident, under.resident)):
            demand(now - before < MOST_GROWTH_MIB, f"{now - before:.0f} MiB more are {what}")

    def hold_restart(self, attack):
        """Kills the collector under attack; the next one must record in time, as exactly as before."""
        self.daemon.kill()
        begin = time.monotonic()
        seconds = exact = None
        with Control() as control:
            while seconds is None and time.monotonic() - begin < PATIENCE_SECONDS:
                # Starts it again when it fails, as systemd does.
                self.daemon.launch()
                with contextlib.suppress(AssertionError):
                    self.daemon.wait_said(r"^heaptap: recording; ")
                    seconds = time.monotonic() - begin
                    exact = self.innocent.why_not_exact()
                if seconds is None:
                    time.sleep(float(setting("RestartSec")))
        _note({"attack": attack, "restart s": "none" if seconds is None else f"{seconds:.2f}", "control": control.text(),
               "innocent": "no dump" if seconds is None else exact or "exact"})
        demand(seconds is not None, f"no collector records after {PATIENCE_SECONDS} s")
        most = control.allow(RESTART_SECONDS, START_TURNS, statistics.median)
        demand(seconds < most, f"a collector records after {seconds:.2f} s, not {most:.2f} s")
        demand(exact is None, exact)

    def hold_recorded(self, attack, process):
        """Another hostile target, whose file is new to the daemon, must be recorded in time."""
        def is_recorded():
            process.ask("sample 1")
            with contextlib.suppress(AssertionError):  # the daemon is too busy to answer
                return process.pid in self.daemon.listed()
            return False

        seconds = None
        begin = time.monotonic()
        with Control() as control, contextlib.suppress(AssertionError):
            wait_until(is_recorded, "it is recorded")
            seconds = time.monotonic() - begin
        _note({"attack": attack, "control": control.text(),
               "innocent": "not recorded" if seconds is None else f"recorded after {seconds:.1f} s"})
        demand(seconds is not None, f"another user's process is not recorded after {PATIENCE_SECONDS} s")
        most = control.allow(RECORDED_SECONDS, START_TURNS, statistics.median)
        demand(seconds < most, f"another user's process is recorded after {seconds:.2f} s, not {most:.2f} s")


def _note(row):
    """Replaces the attack's row in the table."""
    os.makedirs(os.path.dirname(_TABLE), exist_ok=True)
    rows = {}
    with contextlib.suppress(FileNotFoundError), open(f"{_TABLE}.json", encoding="utf-8") as file:
        rows = {one["attack"]: one for one in json.load(file)}
    rows[row["attack"]] = row
    with open(f"{_TABLE}.json", "w", encoding="utf-8") as file:
        json.dump(list(rows.values()), file, indent=1)
    head = ["attack", *_COLUMNS, "control", "resident MiB", "charged MiB", "restart s", "innocent"]
    cells = [[" -> ".join(one[name]) if isinstance(one.get(name), list) else one.get(name, "") for name in head]
             for one in rows.values()]
    widths = [max(map(len, column)) for column in zip(head, *cells)]
    with open(f"{_TABLE}.txt", "w", encoding="utf-8") as file:
        file.write("Answer times in ms (median/longest) and memory, in peace -> under attack.\n\n")
        for line in (head, ["-" * width for width in widths], *cells):
            file.write("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() + "\n")


def start_hostile(lab, *command, **options):
    """Starts a hostile target as an ordinary user, by a command if one is given, and waits until it is ready."""
    process = lab.program(*(command or [target("hostile")]), talks=True, **{**NOBODY, **options})
    process.target_pid = int(process.answer().split()[1])
    return process


class Mount:
    """A hostile target with a file system of its user that never answers one operation (targets/hostile_mount.c)."""

    def __init__(self, lab, name, silent, **options):
        user = {**NOBODY, **options}
        self._folder = lab.path(name)
        self.log = f"{self._folder}.log"
        os.mkdir(self._folder)
        with open(self.log, "w", encoding="ascii"):
            pass
        for path in (self._folder, self.log):
            os.chown(path, user["user"], user["group"])
        self.process = start_hostile(lab, target("hostile_mount"), self._folder, self.log, silent, target("hostile"),
                                     **options)

    def path(self, number):
        return os.path.join(self._folder, str(number))

    def waiting(self):
        """How many requests wait."""
        with open(self.log, encoding="ascii") as file:
            return len(file.readlines()) - 1

    def seen_by_others(self, number):
        """The path of a file for processes outside of the namespace."""
        return f"/proc/{self.process.pid}/root{self.path(number)}"

    def answer_reads(self, answer):
        with open(f"{self.log}.bytes", "wb") as file:
            file.write(answer)
        os.chmod(f"{self.log}.bytes", 0o644)
        with open(self.log, encoding="ascii") as file:
            os.kill(int(file.readline()), signal.SIGUSR1)
