# SPDX-License-Identifier: Apache-2.0
"""Counts how often the daemon's main thread, which records, waits for somebody else, with bpftrace.

A wait begins when the thread goes to sleep outside of its loop's poll(2), and ends when it is woken: what it waits for a
processor does not count, so a busy machine adds little. The loop watches the rings of all processors and more; whoever polls
fewer descriptors waits for a worker.

Not thread-safe. Needs root.
"""

import collections
import ctypes
import os

from bcc_tools import wrapper
from harness import wait_until

_FEWEST_OF_LOOP = 4
# Shorter ones are two threads that met at a lock, or a page. Each wait for a worker counts.
_LEAST_NANOSECONDS = 100_000
_FOR_WORKERS = ("poll", "ppoll", "recvmsg", "sendmsg")
# asm/unistd_64.h; what else it may sleep in has its number as its name.
_NAMES = {-1: "page", 0: "read", 1: "write", 7: "poll", 18: "pwrite64", 45: "recvfrom", 46: "sendmsg", 47: "recvmsg", 61: "wait4",
          75: "fdatasync", 82: "rename", 87: "unlink", 202: "futex", 257: "openat", 265: "linkat", 271: "ppoll", 321: "bpf"}
_EPOLL_WAITS = (232, 281, 441)

# prctl(2) knows no such option, so the system call does nothing: it tells bpftrace to print a mark.
_MARK = 0x68746C73


def _program(tid):
    loops = " || ".join(f"args->id == {number}" for number in _EPOLL_WAITS)
    workers = " || ".join(f"@in == {number}" for number, name in _NAMES.items() if name in _FOR_WORKERS)
    # prev_state has a flag for a thread that was interrupted and still runs.
    return f"""
tracepoint:raw_syscalls:sys_enter /tid == {tid}/ {{
  @call = (int64)args->id;
  @is_loop = {loops} || ((args->id == 7 || args->id == 271) && args->args[1] >= {_FEWEST_OF_LOOP});
}}
tracepoint:raw_syscalls:sys_exit /tid == {tid}/ {{ @call = (int64)-1; @is_loop = 0; }}
tracepoint:sched:sched_switch /args->prev_pid == {tid} && (args->prev_state & 0xff) != 0 && !@is_loop/ {{
  @since = nsecs; @in = @call;
}}
tracepoint:sched:sched_waking /args->pid == {tid} && @since/ {{
  $took = nsecs - @since; @since = (uint64)0;
  if ($took >= {_LEAST_NANOSECONDS} || {workers}) {{ printf("wait %d %lld\\n", @in, $took); }}
}}
tracepoint:syscalls:sys_enter_prctl /pid == {os.getpid()} && args->option == {_MARK}/ {{ printf("mark %d\\n", args->arg2); }}
"""


class Waits:
    """How often the thread waited, and the longest time in seconds, by system call."""

    def __init__(self, lines):
        self.count, self.longest = collections.Counter(), collections.Counter()
        for number, nanoseconds in (map(int, line.split()[1:]) for line in lines if line.startswith("wait ")):
            name = _NAMES.get(number, str(number))
            self.count[name] += 1
            self.longest[name] = max(self.longest[name], nanoseconds / 1e9)

    def for_workers(self):
        return sum(self.count[name] for name in _FOR_WORKERS)

    def text(self):
        return " ".join(f"{name} {count}/{1000 * self.longest[name]:.0f}" for name, count in self.count.most_common()) or "none"


class ThreadWaits:
    """A running bpftrace, which ends with the test at the latest."""

    def __init__(self, lab, pid):
        path = lab.path(f"waits.{pid}.bt")
        with open(path, "w", encoding="ascii") as file:
            file.write(_program(pid))
        self._marks = 0
        self._tracer = lab.program(*wrapper(), "bpftrace", "-B", "line", path)
        wait_until(lambda: self._place(self._mark()), "bpftrace listens")

    def _mark(self):
        self._marks += 1
        # It fails, since the option is unknown.
        ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, (_MARK, self._marks, 0, 0, 0)))
        return self._marks

    def _place(self, mark):
        """The number of the mark's line, from 1; 0 if it is not printed yet."""
        assert self._tracer.alive(), self._tracer.stderr()
        lines = self._tracer.stdout().splitlines()
        return lines.index(f"mark {mark}") + 1 if f"mark {mark}" in lines else 0

    def now(self):
        """A moment, for since()."""
        mark = self._mark()
        return wait_until(lambda: self._place(mark), "bpftrace prints a mark")

    def since(self, moment):
        """All waits since then."""
        end = self.now()
        return Waits(self._tracer.stdout().splitlines()[moment:end])
