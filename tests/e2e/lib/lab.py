# SPDX-License-Identifier: Apache-2.0
"""The programs that a test starts and the dumps that they leave, in a folder of its own."""

import os
import re
import shutil
import subprocess

import harness
from harness import LIBRARY, PATIENCE_SECONDS, Process, Session, environment, target

# Blocks that a process may allocate before it notices that it is recorded: 4 KiB of each size, of fresh blocks (heaptap(1)); here blocks of
# 100 bytes, which take 112.
READY_BLOCKS = 4096 // 112


class Lab:
    def __init__(self, folder):
        self.folder = folder
        self.sessions = []
        self._checked = [self]

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def copy(self, program, name):
        """A copy of a test program under another name, which becomes its command."""
        copy = self.path(name)
        if not os.path.exists(copy):
            shutil.copy(target(program), copy)
        return copy

    # --- programs ---

    def heaptap(self, *arguments, **options):
        """Starts heaptap; `run` and `attach` print their books."""
        arguments = [str(argument) for argument in arguments]
        if arguments and arguments[0] in ("run", "attach"):
            arguments.insert(1, "--books")
        session = Session(arguments, self.folder, **options)
        self.sessions.append(session)
        return session

    def answer_of(self, *arguments, may_say=None):
        """The output of a command that records nothing, which must succeed without a message, but for those that match
        `may_say`."""
        session = self.heaptap(*arguments)
        session.records = False
        session.ends()
        assert [line for line in session.lines() if may_say is None or not re.match(may_say, line)] == []
        return session.stdout()

    def program(self, *command, **options):
        return Process([str(word) for word in command], self.folder, **options)

    def preloaded(self, *command, **options):
        """Starts a program that uses the allocator; only a collector that is already running records it."""
        env = dict(options.pop("env", {}), LD_PRELOAD=LIBRARY)
        return self.program(*command, env=env, **options)

    def puppet(self, *wrapper, **options):
        """Starts a puppet (tests/targets/puppet.c), alone or under another command; waits until it is ready."""
        process = self.program(*wrapper, target("puppet"), talks=True, **options)
        process.target_pid = int(process.answer().split()[1])
        return process

    def puppet_under_heaptap(self, *arguments, **options):
        session = self.heaptap("run", *arguments, "--", target("puppet"), talks=True, **options)
        session.target_pid = int(session.answer().split()[1])
        return session

    def preloaded_puppet(self, name=None, **options):
        """Starts a preloaded puppet, under another name if one is given."""
        process = self.preloaded(self.copy("puppet", name) if name else target("puppet"), talks=True, **options)
        process.target_pid = int(process.answer().split()[1])
        return process

    def attach(self, pid, *arguments, **options):
        """Attaches, and waits until heaptap records."""
        session = self.heaptap("attach", "-p", pid, *arguments, **options)
        session.wait_said(rf"^heaptap: attached to {pid} \(")
        return session

    def reader(self, *command):
        """The output of a program that reads dumps (jeprof, google-pprof), both streams."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
                                env=environment(self.folder), timeout=PATIENCE_SECONDS * 2, check=False)
        assert result.returncode == 0, result.stdout
        return result.stdout

    # --- dumps ---

    def dumps(self, pid=None, kind=None):
        """Names of dumps in the test's folder, by process and sequence."""
        return harness.find_dumps(self.folder, pid, kind)

    def only_dump(self, pid=None, kind=None):
        return harness.only_dump(self.folder, pid, kind)

    def checked(self, something):
        """Registers an object whose check() runs after the test."""
        self._checked.append(something)
        return something

    def check_all(self):
        for something in self._checked:
            something.check()

    def check(self):
        """Checks what holds after every test: the books of all sessions balance, and all dumps are well formed."""
        for session in self.sessions:
            session.check()
        for dump in self.dumps():
            dump.read().check()


def assert_one_clear_line(session, status, *words):
    """Bad input leads to this exit status and one line of heaptap on stderr that contains the words."""
    session.records = False
    session.ends(status)
    (line,) = session.lines()
    assert line.startswith("heaptap: ")
    for word in words:
        assert re.search(word, line)
