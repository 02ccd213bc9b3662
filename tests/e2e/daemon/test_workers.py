# SPDX-License-Identifier: Apache-2.0
"""The processes that do the daemon's dangerous work: what they may do, what they cost when nothing happens, and that a
kill of any of them loses nothing."""

import collections
import contextlib
import itertools
import os
import re
import shutil
import signal
import time

import pytest

from harness import LIBRARY, LONG, PLACE, TIME_SCALE, target, wait_until
from heap_v2 import Dump
from process_tree import descendants, resident_mib
from worker_kills import MOMENTS, RECEIVED, Moment, WorkerKills

BLOCKS, BYTES = 10, 1000
PROFILING = {"MALLOC_CONF": "prof:true,lg_prof_sample:0"}

# linux/capability.h
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF, CAP_CHECKPOINT_RESTORE = (
    1, 2, 19, 21, 38, 39, 40)
# To open what belongs to processes, and to attach probes.
OF_HANDS = sum(1 << number for number in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF,
                                          CAP_CHECKPOINT_RESTORE))
# What a reader says of itself in /proc/PID/status.
SECCOMP_FILTER = "2"

# A file that could not be read is read again after ten seconds, and then after twenty.
RETRIED_SECONDS = 32 * TIME_SCALE

QUIET_PROCESSES = 200
# How often the main thread waits while the daemon's work is counted; it does so four times a second.
QUIET_ROUNDS = 80 if LONG else 20
# A round of the history reads the memory of each process, and facts of those that it does not know yet.
NO_ROUNDS_OF_HISTORY = ("--history-interval", "10m")
# System calls each time it wakes. It asks each of its seven sources, looks at one map and waits, and once a second it does a
# little more: 41 calls a second. One for each process would be 200 more.
MOST_CALLS_OF_A_WAKE = 12.5
MOST_MIB = 60


def workers(daemon):
    """The kinds of the daemon's workers, by PID."""
    found = {}
    for pid in descendants(daemon.process.pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            name, *rest = file.read().decode().split("\0")
            if name == "heaptap-worker":
                found[pid] = rest[0]
    return found


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return dict(re.findall(r"^(\w+):\s*(.*)$", file.read(), re.MULTILINE))


def admin_to_attach():
    """CAP_SYS_ADMIN, where the kernel gives perf events to nobody else and knows no links to many uprobes."""
    version = tuple(map(int, os.uname().release.split(".")[:2]))
    return 1 << CAP_SYS_ADMIN if int(read("/proc/sys/kernel/perf_event_paranoid")) > 2 and version < (6, 10) else 0


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def named_puppet(lab, name, library=LIBRARY):
    """A puppet with a file of its own, which the daemon has not seen before."""
    process = lab.program(lab.copy("puppet", name), talks=True, env={"LD_PRELOAD": library, **PROFILING})
    process.answer()
    return process


def session_niceness(pid):
    """Beside other sessions (sched(7), "The autogroup feature"); without such groups, that of the process."""
    if not os.path.exists("/proc/self/autogroup"):
        return os.getpriority(os.PRIO_PROCESS, pid)
    return int(read(f"/proc/{pid}/autogroup").split()[-1])


def test_what_workers_may_do(lab, start_daemon):
    """Workers share no memory with the daemon that either could write to, and have no more rights than they need."""
    daemon = start_daemon("--exact")
    puppet = named_puppet(lab, "new")
    puppet.ask(f"keep {BLOCKS} {BYTES}")
    daemon.wait_listed(puppet.pid)
    assert b"keep_blocks" in daemon.get(f"/pid/{puppet.pid}/collapsed").body
    assert os.getpriority(os.PRIO_PROCESS, daemon.process.pid) == session_niceness(daemon.process.pid) == -20
    kinds = workers(daemon)
    assert set(kinds.values()) == {"hands", "reader", "foreground-reader"}
    for pid, kind in kinds.items():
        status = status_of(pid)
        assert status["NoNewPrivs"] == "1"
        assert status["Threads"] == "1"
        assert not re.search(r" .w.s ", read(f"/proc/{pid}/maps")), "shared memory"
        assert status["CapInh"] == status["CapAmb"] == "0" * 16
        if kind == "hands":
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == OF_HANDS | admin_to_attach()
            continue
        assert status["CapEff"] == status["CapPrm"] == "0" * 16
        assert status["Seccomp"] == SECCOMP_FILTER
        niceness = 19 if kind == "reader" else 10
        assert os.getpriority(os.PRIO_PROCESS, pid) == niceness
        assert session_niceness(pid) in (0, niceness), "an ordinary session, where the kernel tells sessions apart"
        assert read(f"/proc/{pid}/oom_score_adj") == "1000\n"
        # It has more only while it reads a file.
        wait_until(lambda pid=pid: set(os.listdir(f"/proc/{pid}/fd")) <= {"0", "1", "2"}, f"worker {pid} keeps descriptors")


def look_at_a_new_process(lab, daemon, number):
    """A process begins, is recorded, wants a dump, gets an order and is looked at: all of it is right."""
    puppet = named_puppet(lab, f"puppet{number}")
    puppet.ask(f"keep {BLOCKS} {BYTES}")
    own = lab.path(f"own{number}")
    assert puppet.ask(f"write string prof.dump {own}") == "0"
    daemon.wait_listed(puppet.pid)
    daemon.client("active", puppet.pid, "off")
    page = daemon.get(f"/pid/{puppet.pid}/collapsed")
    assert page.status == 200, page.body
    dump = Dump(own)
    dump.check()
    assert dump.warnings == []
    own_binary = os.path.realpath(lab.path(f"puppet{number}"))
    kept = [stack for stack in dump.stacks
            if stack.total.objects == BLOCKS and dump.mapping(stack.frames[0]).path == own_binary]
    assert len(kept) == 1, [stack.frames for stack in dump.stacks]
    assert len(kept[0].frames) >= 3
    line = next(line for line in page.body.decode().splitlines() if "keep_blocks" in line)
    assert re.search(r"main;.*keep_blocks", line), page.body
    assert puppet.ask("read bool prof.active") == "0 false"
    puppet.ends()


def attach_to_a_new_allocator(lab, daemon, number):
    """A process has an allocator of its own, which is found and gets its probes."""
    library = lab.path(f"libheaptap{number}.so")
    shutil.copy(LIBRARY, library)
    puppet = named_puppet(lab, f"puppet{number}", library)
    wait_until(lambda: puppet.ask("churn 10 1000") and puppet.pid in daemon.listed(), f"puppet {number} is recorded")
    puppet.ends()


# What is done again and again, and at which messages workers are killed meanwhile: at each, or at the first one and then
# each so-many-th.
ROUNDS = (
    (look_at_a_new_process, {"hands": 4, "reader": 3, "foreground-reader": 3}),
    # The other readers have work only once somebody looks at a process.
    (attach_to_a_new_allocator, {"hands": 24, "foreground-reader": 8}),
)


@pytest.mark.endurance
def test_kills_of_workers_lose_nothing(lab, start_daemon, held):
    """A worker is killed at its n-th message, for every n until a round has fewer messages. HEAPTAP_LONG=1: no n is left out."""
    # Allocators of which the daemon did not know.
    daemon = start_daemon("--exact", losses_allowed=("beginning",))
    kills = WorkerKills(lab, daemon)
    numbers = itertools.count()
    for do_round, steps in ROUNDS:
        killed = collections.Counter()
        for moment in MOMENTS:
            if moment.kind not in steps:
                continue
            for message in itertools.count(1, 1 if LONG else steps[moment.kind]):
                kills.begin(moment, message)
                do_round(lab, daemon, next(numbers))
                is_killed, met = kills.begin()
                assert is_killed or met[moment] < message, f"no kill at {message} of {met[moment]} messages, {moment}"
                if not is_killed:
                    break
                killed[moment] += 1
            assert killed[moment] > 0, f"no {moment} in a round"
        held(f"kills of workers, {do_round.__name__}", "no loss", ", ".join(
            f"{moment.kind} {moment.what} {times}" for moment, times in killed.items()))


def frozen_workers(daemon):
    return [pid for pid in workers(daemon) if read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] == "T"]


@pytest.mark.slow
def test_a_frozen_reader(lab, start_daemon, held):
    """The daemon gives up a reader that is frozen, and reads its file again, although no process maps the file anew."""
    daemon = start_daemon("--exact", losses_allowed=("beginning",))
    stops = WorkerKills(lab, daemon, signal.SIGSTOP)
    stops.begin(Moment("foreground-reader", RECEIVED), 1)
    library = lab.path("libheaptap-new.so")
    shutil.copy(LIBRARY, library)
    puppet = named_puppet(lab, "puppet", library)
    wait_until(lambda: frozen_workers(daemon), "a reader is frozen")
    wait_until(lambda: not frozen_workers(daemon), "it is given up")
    begin = time.monotonic()
    wait_until(lambda: puppet.ask("churn 10 1000") and puppet.pid in daemon.listed(), "the process is recorded")
    held("a reader was frozen and given up: until the file is read again", f"{RETRIED_SECONDS:.0f} s",
         f"{time.monotonic() - begin:.1f} s")
    assert time.monotonic() - begin < RETRIED_SECONDS


def cpu_nanoseconds(pid):
    """Of each thread of a process and its descendants: the first word of schedstat (proc(5))."""
    used = {}
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                used[task] = int(read(f"/proc/{one}/task/{task}/schedstat").split()[0])
    return used


def calls_of(lab, daemon, rounds):
    """The number of system calls of a daemon and its workers while its main thread wakes so often."""
    log = lab.path("calls")

    def leave_group():
        # The daemon looks at all that starts in its control group.
        with open(os.path.join(os.path.dirname(PLACE.group), "cgroup.procs"), "w", encoding="ascii") as file:
            file.write("0")
    # strace hangs on a worker that has ended and was not waited for.
    attach = [word for pid in (daemon.process.pid, *workers(daemon)) for word in ("-p", str(pid))]
    tracer = lab.program("strace", "-f", "-ttt", "-o", log, *attach, preexec_fn=leave_group)
    tracer.wait_said("attached")

    def waits():
        with open(log, encoding="utf-8", errors="replace") as file:
            # The end of a call that waited is a line of its own.
            made = re.findall(r"^(\d+) +[0-9.]+ (\w+)\(", file.read(), re.MULTILINE)
        return [number for number, (pid, call) in enumerate(made) if (pid, call) == (str(daemon.process.pid), "poll")]
    wait_until(lambda: len(waits()) > rounds, f"the daemon waits {rounds} times")
    places = waits()[:rounds + 1]
    tracer.signal(signal.SIGINT)
    tracer.wait()
    return places[-1] - places[0]


def resident_sum_mib(pid):
    """Pages that several of the processes share count in each."""
    total = 0
    for one in descendants(pid):
        with contextlib.suppress(OSError, KeyError):
            total += int(status_of(one)["VmRSS"].split()[0])
    return total / 1024


@pytest.mark.product
def test_idle_cost(lab, start_daemon, held):
    """200 quiet processes are recorded."""
    daemon = start_daemon(*NO_ROUNDS_OF_HISTORY)
    puppets = [lab.preloaded(target("puppet"), talks=True, env={"MALLOC_CONF": "lg_prof_sample:0"})
               for _ in range(QUIET_PROCESSES)]
    for puppet in puppets:
        puppet.answer()
    pids = {puppet.pid for puppet in puppets}
    wait_until(lambda: pids <= set(daemon.listed()), "all are recorded")
    wait_until(lambda: pids <= daemon.saved_pids(), "their states are saved")
    # Crews without work end after some seconds.
    wait_until(lambda: list(workers(daemon).values()) == ["hands"], "only the hands of the main thread are left")
    before, begin = cpu_nanoseconds(daemon.process.pid), time.monotonic()
    resident = resident_sum_mib(daemon.process.pid)
    calls = calls_of(lab, daemon, QUIET_ROUNDS)
    after, seconds = cpu_nanoseconds(daemon.process.pid), time.monotonic() - begin
    load = sum(used - before.get(task, 0) for task, used in after.items()) / 1e9 / seconds
    # Other processes of the machine wake it too, so what counts is what it does when it wakes.
    assert calls <= MOST_CALLS_OF_A_WAKE * QUIET_ROUNDS
    assert resident <= MOST_MIB
    held("memory of the idle daemon and its workers, with shared pages counted once", "-",
         f"{resident_mib(daemon.process.pid):.0f} MiB")
    held("memory of the idle daemon and its workers", f"{MOST_MIB} MiB", f"{resident:.0f} MiB")
    held("system calls of the idle daemon each time it wakes, 200 quiet processes", MOST_CALLS_OF_A_WAKE,
         f"{calls / QUIET_ROUNDS:.1f}")
    held("processor time of the idle daemon under strace, 200 quiet processes", "-", f"{load:.3%}")
