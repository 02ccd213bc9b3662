# SPDX-License-Identifier: Apache-2.0
"""System calls of a heaptap that fail, or at which it is killed, by strace's injection (strace(1), "Tampering").

    Session(arguments, folder, before=inject.failing("bpf", "ENOMEM", 7, log))

strace is a grandchild (-D): the session keeps its PID, its signals and its exit status. It follows threads and workers,
and counts the calls of each thread separately, so the n-th call fails in every thread that makes so many. What a traced
heaptap records must not be among its descendants, or it would be traced too: use `attach` and `daemon`.

`log` is a file. It has a line for each call of that name, complete as soon as the session's end was waited for.
"""

import collections
import re
import subprocess

from harness import HEAPTAP, PATIENCE_SECONDS

_CALL = re.compile(r"^(\d+) +(\w+)\(", re.MULTILINE)
_MARK = "(INJECTED)"


# Only the calls that are traced stop, so that a heaptap that makes many others is not slowed down.
_FAST = "--seccomp-bpf"


def _strace(calls, log, *more):
    return ["strace", "-D", "-f", "-qq", "-o", log, "-e", "trace=" + ",".join(calls), *more]


def watched(calls, log):
    """Nothing fails; see calls_by_thread()."""
    return _strace(calls, log, _FAST)


def failing(call, error, number, log, paths=()):
    """The number-th call of each thread does nothing and fails with `error`; "N+": and each later one. Only calls that
    concern one of `paths` count, if there are any."""
    return _strace([call], log, _FAST, *(word for path in paths for word in ("-P", path)),
                   "-e", f"inject={call}:error={error}:when={number}")


def killed_at(call, number, log, paths=()):
    """Kills the process before the number-th call of a thread; only calls that concern one of `paths` count, if there are
    any. They need not exist yet."""
    # Not _FAST: strace 6.1 then loses the signal.
    return _strace([call], log, *(word for path in paths for word in ("-P", path)),
                   "-e", f"inject={call}:signal=KILL:when={number}")


def injections(log):
    """How many calls failed."""
    return _read(log).count(_MARK)


def calls_by_thread(log):
    """{name: {thread: how many calls}}."""
    found = collections.defaultdict(collections.Counter)
    for thread, name in _CALL.findall(_read(log)):
        found[name][int(thread)] += 1
    return found


def writes_a_file(log, number):
    """Whether a thread's number-th write(2) is neither a message on stderr, by which tests see the state of a session, nor
    eight bytes for an eventfd, which cannot fail."""
    by_thread = collections.defaultdict(list)
    for thread, descriptor, size in re.findall(r"^(\d+) +write\((\d+), .*?, (\d+)(?:\)| <unfinished)", _read(log), re.MULTILINE):
        by_thread[thread].append(int(descriptor) != 2 and int(size) != 8)
    return any(number <= len(calls) and calls[number - 1] for calls in by_thread.values())


def calls_of_the_loader(calls, log):
    """{name: how many}: the calls of a heaptap that only prints its version. Its dynamic loader makes them, and ends the
    process with a message of its own if one fails."""
    subprocess.run([*watched(calls, log), HEAPTAP, "--version"], check=True, stdout=subprocess.DEVNULL,
                   timeout=PATIENCE_SECONDS)
    return {name: max(threads.values()) for name, threads in calls_by_thread(log).items()}


def _read(log):
    with open(log, encoding="utf-8", errors="replace") as file:
        return file.read()
