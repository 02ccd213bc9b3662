# SPDX-License-Identifier: Apache-2.0
"""The processes, files and file systems of users who attack a daemon. They go when the attack ends."""

import contextlib
import itertools
import os
import signal
import stat
import subprocess
import threading

from daemons import NOBODY, NOBODY_ID
from harness import target, wait_until

_numbers = itertools.count()


@contextlib.contextmanager
def fuse_for_users():
    """Users may mount file systems during a `with`: udev gives this mode to the device on Debian."""
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    try:
        yield
    finally:
        os.chmod("/dev/fuse", mode)


def start_hostile(lab, *command, **options):
    """Starts a hostile target as an ordinary user, by a command if one is given, and waits until it is ready."""
    process = lab.program(*(command or [target("hostile")]), talks=True, **{**NOBODY, **options})
    process.target_pid = int(process.answer().split()[1])
    return process


class Mount:
    """A hostile target with a file system of its user (targets/hostile_mount.c). Root may mount it for the user."""

    def __init__(self, lab, name, operation, program="hostile", by_root=False):
        self._folder = lab.path(name)
        self.log = f"{self._folder}.log"
        os.mkdir(self._folder)
        with open(self.log, "w", encoding="ascii"):
            pass
        for path in (self._folder, self.log):
            os.chown(path, NOBODY_ID, NOBODY_ID)
        self.process = start_hostile(lab, target("hostile_mount"), self._folder, self.log, operation, target(program),
                                     **({"user": 0, "group": 0} if by_root else {}))

    def path(self, number):
        return os.path.join(self._folder, str(number))

    @property
    def folder(self):
        return self._folder

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


def _freeze(pid):
    """Returns how to thaw it, after which it dies. Its user may have a control group of its own."""
    version_1 = "/sys/fs/cgroup/freezer"
    folder = os.path.join(version_1 if os.path.exists(version_1) else "/sys/fs/cgroup", f"heaptap-test-{pid}")
    state, frozen, thawed = (("freezer.state", "FROZEN", "THAWED") if os.path.exists(version_1) else
                             ("cgroup.freeze", "1", "0"))

    def write(name, value):
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write(value)

    def is_gone():
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        return not os.path.exists(folder)

    def thaw():
        write(state, thawed)
        os.kill(pid, signal.SIGKILL)
        wait_until(is_gone, "the group is empty")
    os.mkdir(folder)
    write("cgroup.procs", str(pid))
    write(state, frozen)
    return thaw


class Attackers:
    """All of one attack. They end together: a process that waits for a file system ends only after the server of that
    file system."""

    def __init__(self, lab, daemon):
        self.lab = lab
        self.daemon = daemon
        self._processes = []
        self._stack = contextlib.ExitStack()

    def add(self, process):
        self._processes.append(process)
        return process

    def tcp_port(self):
        return self.daemon.wait_said(r"^heaptap: recording; .*http://127\.0\.0\.1:(\d+)")[1]

    def hostile(self, *command, **options):
        return self.add(start_hostile(self.lab, *command, **options))

    def mount(self, operation, **options):
        mount = Mount(self.lab, f"mount{next(_numbers)}", operation, **options)
        self.add(mount.process)
        return mount

    def recorded(self, process):
        """Waits until a hostile target is recorded. The collector sees the file of the first one late."""
        wait_until(lambda: process.ask("sample 1") and process.pid in self.daemon.listed(), "it is recorded")
        return process

    def file(self, write, *arguments, owner=NOBODY_ID):
        path = self.lab.path(f"{write.__name__}.{next(_numbers)}")
        write(path, *arguments)
        os.chown(path, owner, owner)
        self._stack.callback(os.unlink, path)
        return path

    def map_files(self, process, uids, count, write, *arguments):
        """The process maps new files of each of the users."""
        for uid in uids:
            for _ in range(count):
                process.ask(f"map_file {self.file(write, *arguments, owner=uid)}")

    def freeze(self, process):
        self._stack.callback(_freeze(process.pid))

    def busy(self, process, order):
        """Gives a long order. Returns whether it is done."""
        def answer():
            with contextlib.suppress(AssertionError):  # it was killed
                process.answer()
        process.tell(order)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        return lambda: not thread.is_alive()

    def end(self):
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._stack.close()
        for process in self._processes:
            process.popen.wait()
        for process in self._processes:
            # Their children, which have become those of this process.
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-process.pid, 0)
        self._processes.clear()


@contextlib.contextmanager
def busy_loops(count):
    """As many innocent processes of the attacker that ask nothing of anybody."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"], **NOBODY) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
