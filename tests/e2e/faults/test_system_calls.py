# SPDX-License-Identifier: Apache-2.0
"""Each system call of a recording fails once. heaptap goes on, or ends with a message and a documented status; it never
hangs, dies by a signal, ends silently, leaves half a dump or its pins behind, or disturbs the program.

Recording is exact: what is not recorded is counted as lost, or heaptap said that something failed.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess

import pytest

import books
import control
import inject
from daemons import EXACT, Daemon
from harness import HEAPTAP, LIBRARY, PATIENCE_SECONDS, Session, environment, find_dumps, wait_until
from heap_v2 import Dump
from lab import READY_BLOCKS

# What each call fails with.
ERRORS = {
    "accept4": "EMFILE", "bind": "EACCES", "bpf": "ENOMEM", "capset": "EPERM", "clone3": "EAGAIN", "close_range": "ENOMEM",
    "connect": "EAGAIN", "dup2": "EMFILE", "epoll_create1": "EMFILE", "epoll_ctl": "ENOMEM", "eventfd2": "EMFILE",
    "execve": "ENOMEM", "faccessat2": "EIO", "fchmodat": "EPERM", "fchown": "EPERM", "fcntl": "EMFILE",
    "fdatasync": "EIO", "flock": "ENOLCK", "fstatfs": "EIO", "ftruncate": "ENOSPC", "getdents64": "ENOMEM",
    "ioctl": "ENOMEM", "kill": "EPERM", "linkat": "ENOSPC", "listen": "EADDRINUSE", "madvise": "ENOMEM",
    "memfd_create": "EMFILE", "mkdir": "ENOSPC", "mmap": "ENOMEM", "mprotect": "ENOMEM", "mremap": "ENOMEM",
    "newfstatat": "ENOMEM", "openat": "EMFILE", "openat2": "EMFILE", "perf_event_open": "EMFILE", "pidfd_open": "EMFILE",
    "poll": "ENOMEM", "prctl": "EPERM", "pread64": "EIO", "prlimit64": "EPERM", "pwrite64": "ENOSPC", "read": "EIO",
    "readlinkat": "ENOMEM", "recvfrom": "ECONNRESET", "recvmsg": "ENOMEM", "sendmsg": "ENOBUFS", "sendto": "EPIPE",
    "setpgid": "EPERM", "setpriority": "EACCES", "setrlimit": "EPERM", "signalfd4": "EMFILE", "socket": "EMFILE",
    "socketpair": "EMFILE", "statfs": "EIO", "statx": "ENOMEM", "unlink": "EROFS", "unlinkat": "EROFS", "write": "EIO",
}

# The full product tries so many moments of one call, spread evenly over a run.
MOST_OF_ATTACH = 250
MOST_OF_DAEMON = 25
# Of the whole product of one call.
PRODUCT_SECONDS = 3600

KEPT = 100  # blocks

# heaptap(1), EXIT STATUS: failure, wrong usage, no such process, missing permission.
STATUSES = (0, 1, 2, 3, 4)
# Not heaptap's messages.
ABSEIL_WITHOUT_MEMORY = "[low_level_alloc.cc : "
ALARMS = ("terminate called", "Assertion", "Check failed", "*** ", "stack trace", "Segmentation", "core dumped")


def assert_explained(session):
    """It ended by itself, with a documented status; a failure has a line of heaptap that is not empty."""
    status = session.popen.returncode
    said = session.stderr()
    # Abseil's allocator for its own mutexes has no other answer to a lack of memory.
    if status == -signal.SIGABRT and ABSEIL_WITHOUT_MEMORY in said:
        return
    assert status in STATUSES, f"ended with {status}:\n{said}"
    assert not [alarm for alarm in ALARMS if alarm in said], said
    lines = session.lines()
    assert all(line.startswith("heaptap: ") and len(line) > len("heaptap: ") for line in lines if line[:1] != " "), said
    assert status == 0 or lines, f"ended with {status} and said nothing"


def problems(session):
    """What it said about a failure."""
    usual = ("attached to ", "wrote ", "recording; ", "the recording ", "took over ")
    return [line for line in session.lines()
            if not line.removeprefix("heaptap: ").startswith(usual) and "with whole stacks" not in line]


def all_losses(entry):
    return sum(books.losses(entry).values())


def assert_books(entries, kept):
    """They balance, and what is not recorded is counted."""
    for entry in entries:
        books.check(entry, losses_allowed=entry["losses"])
        assert entry["live_entries"] + all_losses(entry) >= kept, entry


def assert_as_it_was_found(puppet, session):
    """It has no probes, answers, and names no collector."""
    # The kernel removes probes a little after the end of the collector.
    wait_until(lambda: set(control.semaphores(puppet.pid, LIBRARY).values()) == {0}, "all probes are gone")
    assert control.control(puppet.pid, LIBRARY).collector_pid == 0, f"it names a collector that said:\n{session.stderr()}"
    assert puppet.ask("churn 1 100") == "churned 1"


class Runs:
    """Records one puppet again and again, with another fault each time."""

    def __init__(self, lab):
        self.lab = lab
        self.puppet = None
        self._number = 0

    def new_folder(self):
        if self.puppet is None or not self.puppet.alive():
            self.puppet = self.lab.preloaded_puppet(env=EXACT)
        self._number += 1
        folder = self.lab.path(f"run{self._number}")
        os.mkdir(folder)
        return folder

    def keep(self):
        """Keeps KEPT blocks after the puppet has noticed that it is recorded."""
        blocks = READY_BLOCKS + KEPT
        assert self.puppet.ask(f"keep {blocks} 100") == f"kept {blocks}"

    def attach(self, strace):
        """Attaches under this strace. Returns whether a call failed."""
        folder = self.new_folder()
        puppet = self.puppet
        session = Session(["attach", "--books", "--exact", "-p", str(puppet.pid), "-o", os.path.join(folder, "x")],
                          folder, before=strace(os.path.join(folder, "log")))
        wait_until(lambda: "heaptap: attached to" in session.stderr() or not session.alive(), "it attaches or ends")
        attached = "heaptap: attached to" in session.stderr()
        self.keep()
        if session.alive():
            session.signal(signal.SIGINT)
        session.wait()
        assert_explained(session)
        dumps = find_dumps(folder)
        for dump in dumps:
            dump.read().check()
        if not attached:
            assert session.popen.returncode != 0, "it did not attach, and was content"
        elif not problems(session):
            assert session.popen.returncode == 0
            entries = session.books()
            assert len(entries) == len(dumps) == 1, f"books or the dump are missing silently:\n{session.stderr()}"
            (entry,), (dump,) = entries, dumps
            assert_books([entry], KEPT)
            assert dump.read().total.objects + all_losses(entry) >= KEPT
        else:
            assert_books(session.books(), 0)
        assert_as_it_was_found(puppet, session)
        return inject.injections(os.path.join(folder, "log")) > 0

    def daemon(self, strace):
        """Starts a daemon under this strace, asks it for a dump of the puppet, and ends it. Returns whether a call failed."""
        folder = self.new_folder()
        puppet = self.puppet
        log = os.path.join(folder, "log")
        daemon = Daemon(folder, "--exact", "--history-interval", "100ms")
        session = daemon.launch(before=strace(log))
        try:
            wait_until(lambda: "heaptap: recording; " in session.stderr() or not session.alive(), "it records or ends")
            if session.alive():
                self._use(daemon, folder)
            session.wait()
            assert_explained(session)
            if "heaptap: recording; " not in session.stderr():
                assert session.popen.returncode != 0, "it did not record, and was content"
                assert not os.path.exists(daemon.pin_folder), os.listdir(daemon.pin_folder)
            for dump in find_dumps(folder):
                dump.read().check()
            assert puppet.ask("churn 1 100") == "churned 1"
        finally:
            _end(daemon)
        assert_as_it_was_found(puppet, session)
        return inject.injections(log) > 0

    def _use(self, daemon, folder):
        session = daemon.process
        client = [HEAPTAP, "dump", str(self.puppet.pid), "-o", os.path.join(folder, "asked.prof"), "--socket", daemon.socket]

        def asked():
            if not session.alive():
                return True
            result = subprocess.run(client, capture_output=True, text=True, env=environment(folder),
                                    timeout=PATIENCE_SECONDS, check=False)
            assert result.returncode in STATUSES
            assert (result.returncode == 0) == (result.stderr == ""), result
            return result.returncode == 0
        # A request may fail with the call; the next one is served.
        wait_until(asked, "a dump is written, at once or when asked again")
        self.keep()
        wait_until(asked, "a dump is written")
        if session.alive():
            dump = Dump(os.path.join(folder, "asked.prof"))
            dump.check()
            assert dump.total.objects >= KEPT or dump.warnings or problems(session), "blocks are missing silently"
            session.signal(signal.SIGTERM)


def _end(daemon):
    """Ends the recording whatever the faults have left of it; the end itself is not traced."""
    if daemon.process.alive():
        daemon.process.signal(signal.SIGKILL)
        daemon.process.wait()
    end = Session(daemon.command("--end"), daemon.folder)
    try:
        end.ends()
        assert not os.path.exists(daemon.pin_folder), os.listdir(daemon.pin_folder)
    finally:
        shutil.rmtree(daemon.pin_folder, ignore_errors=True)
    assert_books(daemon.books() + end.books(), 0)


@pytest.fixture
def runs(lab):
    return Runs(lab)


def failing(call, number, error=None):
    return lambda log: inject.failing(call, error or ERRORS[call], number, log)


# --- some that tell much ---

# One each of: signals, loading without memory or permission, programs, perf events, threads, workers' start, talk with
# workers, the watched process, and the name of a dump.
ATTACH = (("signalfd4", 1, "EMFILE"), ("bpf", 40, "ENOMEM"), ("bpf", 2, "EPERM"), ("fcntl", 4, "EMFILE"), ("perf_event_open", 2, "EMFILE"),
          ("clone3", 1, "EAGAIN"), ("clone3", 3, "EAGAIN"), ("socketpair", 1, "EMFILE"), ("sendmsg", 3, "ENOBUFS"),
          ("pidfd_open", 2, "EMFILE"), ("linkat", 1, "ENOSPC"),
          # The removal of the collector from the control block: opening the process, reading the block, writing two fields.
          ("pidfd_open", 3, "EMFILE"), ("pread64", 5, "EIO"), ("pwrite64", 4, "ENOSPC"), ("pwrite64", 5, "ENOSPC"))
DAEMON = (("bpf", 60, "ENOMEM"), ("epoll_create1", 1, "EMFILE"), ("eventfd2", 1, "EMFILE"), ("bind", 1, "EACCES"),
          ("fdatasync", 1, "EIO"), ("poll", 1, "ENOMEM"), ("getdents64", 10, "ENOMEM"),
          # The lock of the pins, their inner folder, and the list of running processes.
          ("flock", 1, "ENOLCK"), ("mkdir", 4, "ENOSPC"), ("getdents64", 9, "ENOMEM"),
          # The control block of a process that was running.
          ("pidfd_open", 1, "EMFILE"))


@pytest.mark.parametrize("call, number, error", ATTACH)
def test_attach(runs, call, number, error):
    assert runs.attach(failing(call, number, error))


@pytest.mark.parametrize("call, number, error", DAEMON)
def test_daemon(runs, call, number, error):
    assert runs.daemon(failing(call, number, error))


def test_threads_outlive_a_failed_poll(lab, new_daemon):
    """Of those that wait for events as long as the daemon runs, for example for stacks that the kernel could not unwind."""
    def start(strace):
        daemon = new_daemon("--exact", "--history", "none")
        daemon.launch(before=strace).wait_said("^heaptap: recording; ")

        def is_settled():
            # Each thread that serves a client fails once.
            with contextlib.suppress(ConnectionError):
                daemon.settle()
                return True
            return False
        wait_until(is_settled, "threads with work have ended")
        return daemon

    def threads(daemon):
        return len(os.listdir(f"/proc/{daemon.process.pid}/task"))
    usual = start(inject.watched(["poll"], lab.path("watched")))
    count = threads(usual)
    usual.end()
    log = lab.path("failing")
    daemon = start(failing("poll", 1)(log))
    assert inject.injections(log) > 0
    assert threads(daemon) == count


def test_a_process_that_cannot_be_told_its_rate(lab, new_daemon):
    """One line says what follows, however often the daemon tries again."""
    puppet = lab.preloaded_puppet(env=EXACT)
    daemon = new_daemon("--rule", "lg-sample=12")
    log = lab.path("log")
    strace = inject.failing("pwrite64", "EIO", "1+", log, paths=[f"/proc/{puppet.pid}/mem"])
    daemon.launch(before=strace).wait_said("^heaptap: recording; ")
    said = rf"^heaptap: process {puppet.pid} \(puppet\) cannot be told its rate and its collector: (.*); it keeps its own rate, "
    assert "Input/output error" in daemon.wait_said(said).group(1)
    before = inject.injections(log)
    # Two tries every second.
    wait_until(lambda: inject.injections(log) >= before + 4, "it is tried again")
    assert len(re.findall(said, daemon.process.stderr(), re.MULTILINE)) == 1
    assert control.control(puppet.pid, LIBRARY).collector_lg_sample == control.NO_RATE


# --- all ---


def each(lab, call, run, most, held):
    """Runs once without a fault to count the calls of the busiest thread, then once for each of them (or `most` of them,
    spread evenly)."""
    logs = []

    def watched(log):
        logs.append(log)
        return inject.watched([call], log)
    run(watched)
    first = inject.calls_of_the_loader([call], lab.path("loader")).get(call, 0) + 1
    last = max(inject.calls_by_thread(logs[0])[call].values(), default=0)
    numbers = range(first, last + 1)
    if len(numbers) > most:
        numbers = [first + i * len(numbers) // most for i in range(most)]
    numbers = [number for number in numbers if call != "write" or inject.writes_a_file(logs[0], number)]
    failed, faults = {}, 0
    for number in numbers:
        try:
            # How often a thread makes a call changes a little from run to run, so the last ones may not come.
            faults += run(failing(call, number))
        except AssertionError as error:
            failed[number] = str(error)
    held(f"{call} failing with {ERRORS[call]}", f"{len(numbers)} of calls {first} to {last}", f"{faults + len(failed)} failed")
    assert not failed, "\n\n".join(f"{call}:error={ERRORS[call]}:when={number}: {why}" for number, why in failed.items())


@pytest.mark.slow
@pytest.mark.timeout(PRODUCT_SECONDS)
@pytest.mark.parametrize("call", ERRORS)
def test_attach_with_each_call(lab, runs, held, call):
    each(lab, call, runs.attach, MOST_OF_ATTACH, held)


@pytest.mark.slow
@pytest.mark.timeout(PRODUCT_SECONDS)
@pytest.mark.parametrize("call", ERRORS)
def test_daemon_with_each_call(lab, runs, held, call):
    each(lab, call, runs.daemon, MOST_OF_DAEMON, held)
