# SPDX-License-Identifier: Apache-2.0
"""Kills a worker of a daemon at a chosen message, so that a test can loop over all messages.

bpftrace counts the messages that all workers of one daemon receive and send, from the start of each worker, and kills the
worker inside the system call: after it has received the message and before it does anything with it, or after it has sent
the message. No time is involved.

Not thread-safe. Needs root and the kernel's BTF.
"""

import collections
import ctypes
import itertools
import os
import re
import signal

from bcc_tools import wrapper
from harness import wait_until

# The kinds are those of userspace/worker/worker.h.
KINDS = ("hands", "reader", "foreground-reader")
RECEIVED, SENT = "received", "sent"
Moment = collections.namedtuple("Moment", "kind what")
MOMENTS = tuple(itertools.starmap(Moment, itertools.product(KINDS, (RECEIVED, SENT))))

_CALLS = {RECEIVED: "recvmsg", SENT: "sendmsg"}
# prctl(2) knows no such option, so the system call itself does nothing. It orders the next round: the daemon's PID, the
# index of the moment, the number of the message (0: no kill) and the number of the round.
_ORDER = 0x68746B6C
# The command line of a worker is this, a zero byte and its kind.
_WORKER = "heaptap-worker"


def _probe(what, signal):
    # Two processors may count at once, and then one message may count as none; "at least" misses no kill.
    kinds = "".join(f"""
  if ($kind == "{kind}") {{
    @met[{index}]++;
    if (@moment == {index} && @number && @met[{index}] >= @number && !@killed) {{ @killed = (uint64)1; signal({signal:d}); }}
  }}""" for index, (kind, one) in enumerate(MOMENTS) if one == what)
    return f"""
tracepoint:syscalls:sys_exit_{_CALLS[what]} /args->ret > 0 && (uint64)curtask->real_parent->tgid == @daemon/ {{
  $kind = str(uptr(curtask->mm->arg_start + {len(_WORKER) + 1}));{kinds}
}}"""


# The numbers of a round are printed and set to zero in the kernel, so they do not depend on when bpftrace gets its turn.
# Programs are attached one after the other: once the first and the last one run, all do.
def _program(signal):
    return f"""
tracepoint:syscalls:sys_enter_prctl /pid == {os.getpid()} && args->option == {_ORDER}/ {{
  printf("round {" ".join(["%d"] * (len(MOMENTS) + 2))}\\n", args->arg5, @killed, {", ".join(
      f"@met[{i}]" for i in range(len(MOMENTS)))});
  {" ".join(f"@met[{i}] = (uint64)0;" for i in range(len(MOMENTS)))}
  @killed = (uint64)0; @daemon = args->arg2; @moment = args->arg3; @number = args->arg4;
}}{_probe(RECEIVED, signal)}{_probe(SENT, signal)}
tracepoint:syscalls:sys_exit_prctl /pid == {os.getpid()} && !@listens/ {{ @listens = (uint64)1; printf("listens\\n"); }}
"""


class WorkerKills:
    """A running bpftrace, which ends with the test at the latest."""

    def __init__(self, lab, daemon, signal=signal.SIGKILL):
        """`signal`: what the worker gets."""
        self._daemon = daemon.process.pid
        self._rounds = 0
        path = lab.path("kills.bt")
        with open(path, "w", encoding="ascii") as file:
            file.write(_program(signal))
        self._tracer = lab.program(*wrapper(), "bpftrace", "--unsafe", "-B", "line", path)
        wait_until(self._listens, "bpftrace listens")

    def _listens(self):
        self._order(0, 0)
        return self._round() and "listens\n" in self._output()

    def _order(self, moment, number):
        self._rounds += 1
        # It fails, since the option is unknown.
        ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, (_ORDER, self._daemon, moment, number, self._rounds)))

    def _output(self):
        assert self._tracer.alive(), self._tracer.stderr()
        return self._tracer.stdout()

    def _round(self):
        return re.search(rf"^round {self._rounds} (.+)\n", self._output(), re.MULTILINE)

    def begin(self, moment=None, number=0):
        """Begins a round in which the worker dies that comes to the number-th message (from 1) of a moment in MOMENTS.

        Returns what the round before was: (whether a worker was killed, {moment: messages})."""
        self._order(0 if moment is None else MOMENTS.index(moment), number)
        killed, *met = map(int, wait_until(self._round, "bpftrace says how the round was")[1].split())
        return killed == 1, dict(zip(MOMENTS, met))
