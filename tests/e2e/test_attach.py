# SPDX-License-Identifier: Apache-2.0
"""heaptap attach: a process that was started with nothing but the preload, recorded from then on, left as it was.

A thread notices that sampling is on at its next slow path: after the blocks that its free lists hold. So the first
blocks after attaching may be missing; FREE_LIST_BLOCKS bounds how many.
"""

import os
import re
import signal
import subprocess

import control
import symbols
from harness import LIBRARY, PATIENCE_SECONDS, Case, environment, wait_until

# More blocks of one class than a thread's free list ever holds.
FREE_LIST_BLOCKS = 16384
# Functions at the outermost end of a complete call path, of the first thread and of others.
ROOTS = {"_start", "__libc_start_main", "__libc_start_call_main", "main", "start_thread", "__clone3", "clone3",
         "__clone", "clone"}


class Attach(Case):
    def kept(self, dump):
        """Live objects of the puppet's keep_blocks()."""
        return sum(stack.total.objects for stack in symbols.stacks_through(dump, "keep_blocks"))

    def test_leaves_the_process_as_it_found_it(self):
        puppet = self.preloaded_puppet()
        pid = puppet.target_pid
        before = control.control(pid, LIBRARY)
        self.assertEqual(before.collector_lg_sample, control.NO_RATE)
        self.assertEqual(set(control.semaphores(pid, LIBRARY).values()), {0})
        session = self.attach(pid, "--exact")
        during = control.control(pid, LIBRARY)
        self.assertEqual(during.collector_lg_sample, 0)
        self.assertGreater(control.semaphores(pid, LIBRARY)["otel_memory:alloc"], 0)
        puppet.ask("keep 40000 100")
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(control.control(pid, LIBRARY), before)
        self.assertEqual(set(control.semaphores(pid, LIBRARY).values()), {0})
        self.assertEqual(puppet.ask("keep 10 100"), "kept 10")
        dump = self.only_dump(pid, "f")
        self.assertGreater(self.kept(dump), 40000 - FREE_LIST_BLOCKS)
        self.assertLessEqual(self.kept(dump), 40000)
        self.assertEqual(puppet.wait(), 0)

    def test_twice_one_after_the_other(self):
        """The second session starts with empty books and sees only what came later."""
        puppet = self.preloaded_puppet()
        for _ in range(2):
            session = self.attach(puppet.target_pid, "--exact", "-o", f"session{len(self.sessions)}")
            puppet.ask("keep 30000 100")
            puppet.ask("churn 30000 100")
            session.signal(signal.SIGTERM)
            self.assertEqual(session.wait(), 0, session.stderr())
            dump = self.dumps()[-1].read()
            self.assertLessEqual(self.kept(dump), 30000)
        self.assertEqual(len(self.dumps()), 2)

    def test_two_at_the_same_time(self):
        """A second heaptap on the same process either records too or is refused in one line; the first goes on."""
        puppet = self.preloaded_puppet()
        first = self.attach(puppet.target_pid, "--exact", "-o", "first")
        second = self.heaptap("attach", "-p", puppet.target_pid, "--exact", "-o", "second", "-d", "1")
        status = second.wait()
        if status != 0:
            self.assert_one_clear_line(second, 1, str(puppet.target_pid))
        puppet.ask("keep 40000 100")
        first.signal(signal.SIGINT)
        self.assertEqual(first.wait(), 0, first.stderr())
        (dump,) = [dump for dump in self.dumps() if dump.prefix == "first"]
        self.assertGreater(self.kept(dump.read()), 40000 - FREE_LIST_BLOCKS)

    def test_for_some_seconds(self):
        """-d 1: it ends by itself, with a final dump; the target runs on."""
        puppet = self.preloaded_puppet()
        session = self.attach(puppet.target_pid, "-d", "1")
        puppet.ask("keep 100 100")
        self.assertEqual(session.wait(), 0, session.stderr())
        self.only_dump(puppet.target_pid, "f")
        self.assertEqual(puppet.wait(), 0)

    def test_sigusr1(self):
        puppet = self.preloaded_puppet()
        session = self.attach(puppet.target_pid, "--exact")
        for number in range(2):
            puppet.ask("keep 20000 100")
            session.signal(signal.SIGUSR1)
            session.wait_said(rf"^heaptap: wrote .*\.{number}\.m{number}\.heap: \d+ bytes in \d+ objects live")
        session.signal(signal.SIGTERM)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual([dump.kind for dump in self.dumps()], ["m", "m", "f"])

    def test_the_target_ends(self):
        puppet = self.preloaded_puppet()
        session = self.attach(puppet.target_pid, "--exact")
        puppet.ask("keep 30000 100")
        os.kill(puppet.target_pid, signal.SIGKILL)
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(puppet.target_pid, "f")
        self.assertGreater(dump.total.objects, 30000 - FREE_LIST_BLOCKS)

    def test_killed_heaptap_leaves_the_target_running(self):
        """kill -9 of heaptap: the target neither ends nor waits, and can be attached to again."""
        puppet = self.preloaded_puppet()
        session = self.attach(puppet.target_pid, "--exact")
        puppet.ask("keep 30000 100")
        session.signal(signal.SIGKILL)
        session.wait()
        self.assertEqual(puppet.ask("churn 100000 100"), "churned 100000")
        wait_until(lambda: set(control.semaphores(puppet.target_pid, LIBRARY).values()) == {0}, "semaphores are zero")
        again = self.attach(puppet.target_pid, "--exact")
        puppet.ask("keep 40000 100")
        again.signal(signal.SIGTERM)
        self.assertEqual(again.wait(), 0, again.stderr())
        self.assertGreater(self.only_dump().total.objects, 40000 - FREE_LIST_BLOCKS)
        self.assertEqual(puppet.wait(), 0)

    def test_killed_heaptap_run_leaves_the_command_running(self):
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 1000 100")
        session.signal(signal.SIGKILL)
        self.assertEqual(session.popen.wait(PATIENCE_SECONDS), -signal.SIGKILL)
        self.assertEqual(session.ask("churn 100000 100"), "churned 100000")

    def test_a_process_that_gave_up_its_privileges(self):
        """The target becomes nobody before and while it is recorded; a root heaptap records on."""
        puppet = self.preloaded_puppet()
        self.assertEqual(puppet.ask("uid 65534"), "uid 65534")
        session = self.attach(puppet.target_pid, "--exact")
        puppet.ask("keep 40000 100")
        session.signal(signal.SIGTERM)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertGreater(self.only_dump().total.objects, 40000 - FREE_LIST_BLOCKS)

    def test_run_a_process_that_gives_up_its_privileges(self):
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 100 100")
        self.assertEqual(session.ask("uid 65534"), "uid 65534")
        session.ask("keep 100 100")
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(self.kept(self.only_dump()), 200)


class AttachToRedis(Case):
    """Debian's redis-server, started with nothing but the preload, attached to while redis-benchmark loads it."""

    def redis_cli(self, *arguments):
        return subprocess.run(["redis-cli", "-s", self.socket, *arguments], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env=environment(self.folder), check=False).stdout.strip()

    def commands(self):
        """How many commands the server has carried out."""
        return int(re.search(r"total_commands_processed:(\d+)", self.redis_cli("info", "stats")).group(1))

    def test_redis_under_load(self):
        self.socket = os.path.join(self.folder, "redis.sock")
        server = self.program("redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir",
                              self.folder, env={"LD_PRELOAD": LIBRARY})
        wait_until(lambda: self.redis_cli("ping") == "PONG", "redis answers")
        loads = [self.program("redis-benchmark", "-s", self.socket, "-n", "100000000", "-c", "10", "-r", "1000000",
                              "-d", "200", "-t", what) for what in ("set", "lpush", "hset", "sadd")]
        session = self.attach(server.pid, "--lg-sample", "14")
        enough = self.commands() + 200000
        wait_until(lambda: self.commands() > enough, "redis does 200000 commands")
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        for load in loads:
            load.signal(signal.SIGKILL)
            load.wait()
        self.assertEqual(self.redis_cli("ping"), "PONG")
        self.redis_cli("shutdown", "nosave")
        self.assertEqual(server.wait(), 0, server.stderr())
        dump = self.only_dump(server.pid, "f")
        self.assertGreater(dump.total.objects, 100)
        self.say_which_share_ends_at_a_root(dump)
        program = os.path.realpath("/usr/bin/redis-server")
        text = self.reader("jeprof", "--text", program, self.dumps()[0].path)
        self.assertRegex(text, r"zmalloc|sds|dict|createObject")

    def say_which_share_ends_at_a_root(self, dump):
        """What ends where is said; asserted is only what is sure: real functions of redis, which exports them all."""
        of_redis = rooted = 0
        functions = set()
        for stack in dump.stacks:
            known = symbols.names(dump, stack)
            paths = [mapping.path if mapping else "" for mapping in map(dump.mapping, stack.frames)]
            own = {name for name, path in zip(known, paths) if name and "redis" in os.path.basename(path)}
            functions |= own
            of_redis += bool(own)
            rooted += bool(ROOTS & set(known[-3:]))
        count = len(dump.stacks)
        print(f"        redis: {count} call paths, {of_redis} through functions of redis ({len(functions)} different), "
              f"{rooted} ({100 * rooted // count} %) end at a known root")
        self.assertGreater(of_redis, count // 2)
        self.assertEqual(dump.warnings, [])
        self.assertTrue(functions & {"zmalloc", "zmalloc_usable", "ztrymalloc_usable", "zrealloc"}, functions)
