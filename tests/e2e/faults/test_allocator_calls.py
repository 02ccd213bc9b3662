# SPDX-License-Identifier: Apache-2.0
"""Each system call of the preloaded libraries fails: at each number, once or from there on. The program goes on: no crash,
no hang, no damaged byte. A call that gives memory back, or that only makes things better, costs no request; one that asks for
memory at most the request that it was for. When calls succeed again, so does every request.

KINDS says what depends on each call, and is complete (test_the_table_is_complete). pthread_key_create makes no call: see
test_allocator_limits.py.
"""

import collections
import errno
import glob
import os
import random
import re

import pytest

import refused
from harness import ROOT

pytestmark = pytest.mark.without_bpf

# What a failure costs. A guest asks its host instead, so it costs no request there either.
A_REQUEST, NOTHING = "the request", "nothing"

# errors; costs; modes: in which every_request makes such calls; what: which calls, and what then happens.
Kind = collections.namedtuple("Kind", "error costs modes what")

LIBRARY = ("library", "library-sampled", "library-eager")
SAMPLED = ("library-sampled", "library-eager", "guest-sampled")
ALL = tuple(refused.MODES)

KINDS = {
    "mmap": Kind(errno.ENOMEM, A_REQUEST, (*LIBRARY, "guest-sampled"), """
        MapAligned: a chunk: smaller ones are tried, then NULL. A huge block: NULL, or for realloc a copy is tried. The heap of a
            thread: it shares the main arena's. An arena, figures for mallctl: mallctl fails. The page of probe sites: breakpoints.
        MapAt of the guest: smaller chunks are tried, then the host serves."""),
    "mmap-renew": Kind(errno.ENOMEM, NOTHING, ("guest-sampled",), """
        RenewPages of the guest: new pages for a run to which the program has done something; the addresses stay unused."""),
    "mprotect-open": Kind(errno.ENOMEM, NOTHING, ALL, """
        Protect in own_names.cc, at the start: the names stay."""),
    "mprotect-close": Kind(errno.ENOMEM, NOTHING, ALL, """
        Protect in own_names.cc, at the start: a page of the tables stays writable."""),
    "munmap": Kind(errno.ENOMEM, NOTHING, (*LIBRARY, "guest-sampled"), """
        Unmap: a huge block's memory goes back, and its addresses stay; so do the margins of an aligned mapping."""),
    "madvise": Kind(errno.ENOMEM, NOTHING, (*LIBRARY, "guest-sampled"), """
        DiscardPages: the memory stays dirty, and is cleared before it is used as zeroed; a later purge tries again.
        ForbidHugePages, AskForHugePages: the kernel decides. MADV_WIPEONFORK of the page of probe sites: breakpoints."""),
    "mremap-grow": Kind(errno.ENOMEM, A_REQUEST, (*LIBRARY, "guest-sampled"), """
        ResizeMapping in place: the block moves. MoveMapping: the contents are copied. IsOneMapping: fails by design."""),
    "mremap-shrink": Kind(errno.ENOMEM, NOTHING, ("library", "library-sampled", "guest-sampled"), """
        ResizeMapping in place: the block moves, or a kept one is unmapped and another is mapped. MoveMapping: as above."""),
    "membarrier": Kind(errno.EPERM, NOTHING, LIBRARY, """
        BarrierInAllThreads: a waiting thread's heap is not searched; its memory goes back when the thread allocates."""),
    "prlimit64": Kind(errno.EPERM, NOTHING, (*LIBRARY, "guest-sampled"), """
        MappingLimit: there is none, so whole chunks are tried first."""),
    "uname": Kind(errno.EFAULT, NOTHING, SAMPLED, """
        HasKernel of the probe sites: breakpoints."""),
    "readlinkat": Kind(errno.ENOENT, NOTHING, ALL, """
        The options that a link's name holds (/etc/malloc.conf): there are none."""),
    "prctl": Kind(errno.EINVAL, NOTHING, ("library-eager",), """
        The name of the background thread: it has the program's."""),
    "rt_sigprocmask": Kind(errno.EINVAL, NOTHING, ("library-eager",), """
        Signals that the background thread is not to handle: it may."""),
}

# Calls of any code, from the program's first request on: what the libraries do with what libc refuses.
BY_ANY = {
    "clone3": Kind(errno.EAGAIN, A_REQUEST, ALL, "pthread_create: the program has no thread; the library no background thread."),
    "mmap": Kind(errno.ENOMEM, A_REQUEST, ("guest", "guest-sampled"), "The host has no memory: NULL."),
    "mprotect-open": Kind(errno.ENOMEM, A_REQUEST, ("guest", "guest-sampled"), "The host's heap does not grow: NULL."),
    "munmap": Kind(errno.ENOMEM, NOTHING, ("guest", "guest-sampled"), "The host's memory stays."),
    "mremap-grow": Kind(errno.ENOMEM, A_REQUEST, ("guest",), "The host copies, or NULL."),
}

# Calls of the libraries that are not refused here.
NOT_HERE = {
    "futex": "fails as if it had been interrupted, which its loops expect",
    "clock_gettime": "only where the vDSO has none (tests/allocator/vdso_test.cc)",
    "mincore": "figures of mallctl only: nothing is resident",
    "munlock": "where locked memory is limited: what stays locked counts, and a request may be refused",
    "gettid tkill": "without keys of threads: cannot fail, or the thread seems to live (test_allocator_limits.py)",
    "socketpair getsockopt recvmsg": "a process without an area reports its samples: test_counted.py::test_without_descriptors",
    "getpid exit_group kill sched_yield nanosleep close": "cannot fail, or the result does not matter",
    "stat fstat lstat read pread64 readlink openat rename renameat2 unlinkat memfd_create eventfd2 ppoll fcntl":
        "the options' folder, dumps and the log: tests/e2e/dumps",
    "write": "messages: a failure cannot be reported",
}

# Kinds of which a failure still has consequences.
OPEN = {}

# Programs at once: each is busy.
AT_ONCE = os.cpu_count()


def cases(kinds):
    for kind, entry in kinds.items():
        for mode in entry.modes:
            reason = OPEN.get((mode, kind)) if kinds is KINDS else None
            marks = pytest.mark.xfail(strict=True, reason=reason) if reason else ()
            yield pytest.param(mode, kind, marks=marks, id=f"{mode}-{kind}")


def most_refused(mode, kind, caller, first, last):
    """How many requests this may cost."""
    if caller == "any":
        entry, host_serves = BY_ANY[kind], False
    else:
        entry, host_serves = KINDS[kind], mode.startswith("guest")
    if entry.costs == NOTHING or host_serves:
        return 0
    return 1 if first == last else refused.FOREVER


def assert_goes_on(lab, mode, kind, ranges, caller):
    """The calls of each range fail, in one program each."""
    error = (BY_ANY if caller == "any" else KINDS)[kind].error
    failed = 0
    for begin in range(0, len(ranges), AT_ONCE):
        batch = ranges[begin:begin + AT_ONCE]
        started = [refused.start_refusing(lab, mode, kind, error, first, last, caller) for first, last in batch]
        for (first, last), process in zip(batch, started):
            found = refused.result(process)
            assert found.refused_before <= most_refused(mode, kind, caller, first, last), (first, last, process.stderr())
            assert found.refused_after == 0, (first, last, process.stderr())
            failed += found.failed
    assert failed > 0


_calls = {}


def count(lab, mode, kind, caller):
    """How many such calls there are if none fails."""
    if (mode, caller) not in _calls:
        _calls[mode, caller] = refused.result(refused.start_refusing(lab, mode, kind, 0, 0, 0, caller)).calls
    return _calls[mode, caller][kind]


def some(lab, mode, kind, caller):
    """All of them, and one that its name chooses; `make test` takes seconds."""
    one = random.Random(mode + kind).randint(1, count(lab, mode, kind, caller))
    return [(1, refused.FOREVER), (one, one)]


def each(lab, mode, kind, caller):
    """Each alone, and with all that follow."""
    return [(number, last) for number in range(1, count(lab, mode, kind, caller) + 1) for last in (number, refused.FOREVER)]


@pytest.mark.parametrize("mode, kind", cases(KINDS))
def test_some_calls_of_the_library_fail(lab, mode, kind):
    assert_goes_on(lab, mode, kind, some(lab, mode, kind, "libheaptap"), "libheaptap")


@pytest.mark.parametrize("mode, kind", cases(BY_ANY))
def test_some_calls_of_any_code_fail(lab, mode, kind):
    assert_goes_on(lab, mode, kind, some(lab, mode, kind, "any"), "any")


@pytest.mark.slow
@pytest.mark.parametrize("mode, kind", cases(KINDS))
def test_each_call_of_the_library_fails(lab, mode, kind):
    assert_goes_on(lab, mode, kind, each(lab, mode, kind, "libheaptap"), "libheaptap")


@pytest.mark.slow
@pytest.mark.parametrize("mode, kind", cases(BY_ANY))
def test_each_call_of_any_code_fails(lab, mode, kind):
    assert_goes_on(lab, mode, kind, each(lab, mode, kind, "any"), "any")


def test_the_table_is_complete(lab):
    """Each system call in the sources of the two libraries is in a table, and each call that is made is of its modes."""
    made = set()
    for path in glob.glob(f"{ROOT}/allocator/**/*.cc", recursive=True):
        # libheaptap-sample.a is linked, not preloaded.
        if not path.startswith(f"{ROOT}/allocator/sample/"):
            with open(path, encoding="utf-8") as file:
                made.update(re.findall(r"\bSYS_(\w+)", file.read()))
    in_tables = {kind.split("-")[0] for kind in KINDS} | {name for names in NOT_HERE for name in names.split()}
    assert made - in_tables == set()
    for mode in refused.MODES:
        calls = refused.result(refused.start_refusing(lab, mode, "mmap", 0, 0, 0)).calls
        assert set(calls) == {kind for kind, entry in KINDS.items() if mode in entry.modes}, mode
