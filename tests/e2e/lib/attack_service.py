# SPDX-License-Identifier: Apache-2.0
"""What an attack does to a daemon with the rights and limits of its systemd unit, and to an innocent user.

A Service answers four questions of an innocent user again and again (innocents.py): GET /healthz, GET /pid/N/heap,
`heaptap dump`, and the dump that the user's process asks for itself. They are measured first beside busy loops of the
attacker, which ask the daemon nothing, and then under attack.

What no processor decides must hold always: each question is answered, nothing of the innocent process is lost, a new
process is recorded, the daemon lives, does not grow, and is well again after the attack. Times are judged only with
HEAPTAP_LONG=1, where one question more or less counts little: at most so much later than beside the busy loops.
"""

import contextlib
import os
import time

import attack_table
from attackers import Attackers, busy_loops, start_hostile
from harness import HEAPTAP, LONG, PATIENCE_SECONDS, TIME_SCALE, wait_until
from innocents import INNOCENT, INNOCENT_ID, AskedByThread, Innocent, asked_by_client
from process_tree import descendants, resident_mib
from thread_waits import ThreadWaits
from unit import limit_self, memory_max, setting, with_its_capabilities

# How much later than beside busy loops, with HEAPTAP_LONG=1.
MEDIAN_SECONDS = 0.005 * TIME_SCALE
LONGEST_SECONDS = 0.25 * TIME_SCALE
PAUSE_SECONDS = 0.05 * TIME_SCALE
WELL_SECONDS = 2 * TIME_SCALE
# Of a start, and until a new process is recorded: so long may what is asked of all processes take.
START_SECONDS = 2 * TIME_SCALE
# Sanitizers keep freed memory, and shadows of all memory.
MOST_GROWTH_MIB = 256 * (8 if "/sanitized/" in HEAPTAP else 1)
# Enough for a median, and with HEAPTAP_LONG=1 for many moments of the attack.
QUESTIONS = 200 if LONG else 20
# When the questions get no answers.
ATTACK_SECONDS = (60 if LONG else 20) * TIME_SCALE
# After the attack, all questions are answered well so many times in a row.
WELL_QUESTIONS = 20
# A file of a new process may belong to another user than the process, as those of services do: "bin".
DEPLOYER_ID = 2
MIB = 1 << 20
PREAD64 = 17  # asm/unistd_64.h; how hands read the memory of processes


class Succeeded(Exception):
    """The attack broke a bound."""


def demand(is_held, text):
    if not is_held:
        raise Succeeded(text)


class Measurement:
    """Of a time: the longest pause of the main thread in seconds and its waits, the most memory, and the seconds until a new
    process was recorded (None: never)."""

    def __init__(self):
        self.begin = time.monotonic()
        self.end = self.pause = self.newcomer = self.waits = None
        self.resident = self.charged = 0


def _seconds(value):
    return "none" if value is None else f"{value:.2f}"


class Service:
    """A daemon as the unit starts it, and the innocent user. `loops`: the busy loops of the control run, as many as the
    attack has busy processes. `held` notes what held, as the fixture."""

    def __init__(self, lab, start_daemon, cgroup, *arguments, loops=1, subordinate_ids="", root_lists=False, held=None):
        """`subordinate_ids`: the contents of /etc/subuid for the daemon. `root_lists`: root asks for a list of all processes,
        again and again."""
        self.lab = lab
        self.cgroup = cgroup
        self._held = held
        self._newcomers = 0
        table = lab.path("subuid")
        with open(table, "w", encoding="ascii") as file:
            file.write(subordinate_ids)

        def before_exec():
            cgroup.enter()
            limit_self()
        with_table = ["unshare", "--mount", "sh", "-c", f"mount --bind {table} /etc/subuid && exec \"$@\"", "sh"]
        self.daemon = start_daemon("--exact", *arguments, has_books=False, before=[*with_table, *with_its_capabilities()],
                                   preexec_fn=before_exec)
        # Users may reach the socket.
        os.chmod(self.daemon.folder, 0o755)
        self.attackers = Attackers(lab, self.daemon)
        self._innocent = Innocent(lab, self.daemon)
        self.questions = {"healthz": asked_by_client(lab, self.daemon, "/healthz"),
                          "heap": asked_by_client(lab, self.daemon, f"/pid/{self._innocent.process.pid}/heap"),
                          "dump": AskedByThread(self._innocent.dump), "own dump": AskedByThread(self._innocent.own_dump)}
        if root_lists:
            self.questions["root's list"] = AskedByThread(self.daemon.listed)
        if LONG:
            # The daemon tells the longest pause of the last seconds, and the start was one.
            wait_until(lambda: self._pause() < PAUSE_SECONDS, "the start is no pause any more")
        self._waits = ThreadWaits(lab, self.daemon.process.pid)
        with busy_loops(loops):
            self.control = self.measure()
        self._maps = self._map_mib()

    def close(self):
        self.attackers.end()
        # It may wait for a dump, with endless patience.
        self._innocent.end()
        for question in self.questions.values():
            question.end()

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

    # --- what is measured ---

    def _pause(self):
        """Infinite if the daemon does not tell."""
        with contextlib.suppress(AssertionError, OSError):
            return self.daemon.metrics()["heaptap_longest_pause_seconds"]
        return float("inf")

    def _map_mib(self):
        """The kernel's memory for the books, which have bounds of their own (--map-size)."""
        return self.daemon.metrics().get("heaptap_kernel_memory_bytes", 0) / MIB

    def measure(self, is_over=lambda: True):
        """Until each question was answered QUESTIONS times and is_over(), or ATTACK_SECONDS; then with a new process."""
        found = Measurement()
        moment = self._waits.now()

        def is_measured():
            found.resident = max(found.resident, resident_mib(self.daemon.process.pid))
            found.charged = max(found.charged, self.cgroup.used() / MIB)
            is_enough = all(one.answered(found.begin) >= QUESTIONS for one in self.questions.values())
            return (is_enough and is_over()) or time.monotonic() - found.begin > ATTACK_SECONDS
        wait_until(is_measured, "it is measured", 2 * ATTACK_SECONDS)
        # The daemon forgets a pause after some seconds, and a newcomer may take longer.
        found.pause = self._pause()
        found.newcomer = self._record_newcomer()
        found.pause = max(found.pause, self._pause())
        found.waits = self._waits.since(moment)
        found.end = time.monotonic()
        return found

    def _record_newcomer(self):
        """A process of the innocent user, with a file that is new to the daemon: the seconds until it is recorded."""
        path = self.lab.copy("hostile", f"newcomer{self._newcomers}")
        self._newcomers += 1
        os.chown(path, DEPLOYER_ID, DEPLOYER_ID)
        begin = time.monotonic()
        process = start_hostile(self.lab, path, **INNOCENT)

        def is_recorded():
            process.ask("sample 1")
            with contextlib.suppress(AssertionError, OSError):  # the daemon is too busy to answer
                return process.pid in self.daemon.listed()
            return False
        try:
            wait_until(is_recorded, "it is recorded")
            return time.monotonic() - begin
        except AssertionError:
            return None
        finally:
            process.signal(9)
            process.popen.wait()
            os.unlink(path)

    def _wait_well(self, begin):
        """The seconds from the attack's end until the last answer that was refused or late."""
        def last_bads():
            return [one.last_bad(begin, self._most(name)) for name, one in self.questions.items()]

        def is_well():
            bads = last_bads()
            return None not in bads and all(one.answered(bad) >= WELL_QUESTIONS
                                            for one, bad in zip(self.questions.values(), bads))
        with contextlib.suppress(AssertionError):
            wait_until(is_well, "all is well again")
            return max(last_bads()) - begin
        return None

    def _most(self, name):
        return self._answers(self.control, name).longest + LONGEST_SECONDS

    def _answers(self, measurement, name):
        return self.questions[name].between(measurement.begin, measurement.end)

    @contextlib.contextmanager
    def alone(self):
        """The innocent process, which nothing else uses during a `with`."""
        with self.questions["own dump"], self.questions["dump"]:
            yield self._innocent

    @contextlib.contextmanager
    def quiet(self):
        """No question is asked during a `with`."""
        with contextlib.ExitStack() as stack:
            for question in self.questions.values():
                stack.enter_context(question)
            yield

    def end_attack(self):
        """Returns the seconds until all was well again, or None."""
        self.attackers.end()
        return self._wait_well(time.monotonic())

    def exactness(self):
        """Why the innocent profile is not exact, and its losses."""
        with self.alone() as innocent:
            try:
                return innocent.why_not_exact(), innocent.losses()
            except (AssertionError, OSError) as error:
                return f"no figures: {error}", {}

    # --- what must hold ---

    def hold(self, attack, is_over=lambda: True):
        """Measures under attack, ends the attackers, writes the row of the table, and asserts the bounds."""
        under = self.measure(is_over)
        well = self.end_attack()
        exact, losses = self.exactness()
        row = {"attack": attack,
               **{name: [self._answers(one, name).text() for one in (self.control, under)] for name in self.questions},
               "pause": [f"{1000 * one.pause:.0f}" for one in (self.control, under)],
               "waits": [one.waits.text() for one in (self.control, under)],
               "losses": str(sum(losses.values())),
               "newcomer s": [_seconds(one.newcomer) for one in (self.control, under)],
               "well again s": _seconds(well),
               "resident MiB": [f"{one.resident:.0f}" for one in (self.control, under)],
               "charged MiB": [f"{one.charged:.0f}" for one in (self.control, under)],
               "innocent": exact or "exact"}
        attack_table.note(row)
        words = f"\n{row}\nlast words: {self.daemon.process.lines()[-10:]}"
        for name in self.questions:
            refused = self._answers(under, name).refused
            demand(not refused, f"{name}: {refused} times there was no answer{words}")
        demand(exact is None, f"{exact}{words}")
        demand(not losses, f"lost: {losses}{words}")
        demand(under.newcomer is not None, f"a new process is not recorded after {PATIENCE_SECONDS} s{words}")
        demand(well is not None, f"after the attack all is not well again{words}")
        demand(self.daemon.process.alive(), f"the collector has ended{words}")
        maps = self._map_mib() - self._maps
        for what, before, now in (("charged besides the books", self.control.charged, under.charged - maps),
                                  ("resident", self.control.resident, under.resident)):
            demand(now - before < MOST_GROWTH_MIB, f"{now - before:.0f} MiB more are {what}{words}")
        if LONG:
            self._judge_times(attack, under, well)

    def _judge_times(self, attack, under, well):
        def judge(what, most, measured):
            self._held(f"{attack}: {what}", f"{1000 * most:.0f} ms", f"{1000 * measured:.0f} ms")
            demand(measured <= most, f"{what}: {1000 * measured:.0f} ms, not {1000 * most:.0f} ms")
        for name in self.questions:
            before, now = (self._answers(one, name) for one in (self.control, under))
            judge(f"{name}, median", before.median + MEDIAN_SECONDS, now.median)
            judge(f"{name}, longest", before.longest + LONGEST_SECONDS, now.longest)
        judge("longest pause", self.control.pause + PAUSE_SECONDS, under.pause)
        judge("a new process", self.control.newcomer + START_SECONDS, under.newcomer)
        judge("well again", WELL_SECONDS, well)

    def hold_restart(self, name, attack):
        """Kills the collector under an attack of attacks.py; the next one must record in time, as exactly as before. The
        control is the same after the attack. Nobody asks meanwhile: a question that is open would wait for ever."""
        with self.quiet():
            attack(self.attackers)
            under, exact = self._restart()
            self.attackers.end()
            control, exact_again = self._restart()
        attack_table.note({"attack": name, "restart s": [_seconds(control), _seconds(under)], "innocent": exact or "exact"})
        demand(under is not None, f"no collector records after {PATIENCE_SECONDS} s")
        demand(control is not None, f"after the attack no collector records after {PATIENCE_SECONDS} s")
        demand(exact is None, exact)
        demand(exact_again is None, exact_again)
        if LONG:
            most = control + START_SECONDS
            self._held(f"{name}: start", f"{most:.2f} s", f"{under:.2f} s")
            demand(under <= most, f"a collector records after {under:.2f} s, not {most:.2f} s")

    def _restart(self):
        """Returns the seconds until a collector records, or None, and why the profile is not exact then."""
        self.daemon.kill()
        begin = time.monotonic()
        while time.monotonic() - begin < PATIENCE_SECONDS:
            # Starts it again when it fails, as systemd does.
            self.daemon.launch()
            with contextlib.suppress(AssertionError):
                self.daemon.wait_said(r"^heaptap: recording; ")
                return time.monotonic() - begin, self._innocent.why_not_exact()
            time.sleep(float(setting("RestartSec")))
        return None, "no dump"
