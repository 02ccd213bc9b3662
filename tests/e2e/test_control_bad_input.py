# SPDX-License-Identifier: Apache-2.0
"""Bad input to the control surface: names of dumps, full disks, collectors that die, dumps asked for
where nobody expects them.

Always: an error code and at most one line on stderr; the program goes on; no call takes longer than its bound; what
lies under the name of a dump is a whole dump. A dump is given up after 10 seconds (contract.h); one that waits for
others' dumps first is given up after as long again for each of the two that may be before it.
"""

import errno
import os
import re
import signal
import stat
import subprocess
import time

from harness import LIBRARY, Case, target, wait_until
from heap_v2 import Dump
from walkthrough import KI, OnHeaptap, Steering, held, said

DUMP_SECONDS = 10
QUEUE_SECONDS = 3 * DUMP_SECONDS
# For two busy processors.
SLACK_SECONDS = 5
BLOCK = 64 * KI
FAILED = (errno.EFAULT, errno.EAGAIN)


class Watched(Steering, OnHeaptap):
    CONF = "prof:true,lg_prof_sample:0,prof_prefix:"

    def begin(self, prefix="dump", conf=""):
        return self.steered(self.CONF + prefix + conf)

    def assert_goes_on(self, process, lines):
        """It has said that many lines at most, and its next dump is whole."""
        self.assertLessEqual(len(said(process)), lines, said(process))
        self.assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"), ("write string prof.dump goes-on.prof", "0"))
        self.assertGreaterEqual(held(self.dump_named("goes-on.prof"), "keep_blocks")[0], 3)

    def assert_no_torn_file(self):
        """What lies under a name that was asked for is a whole dump."""
        for where, _, files in os.walk(self.folder):
            for name in files:
                if re.search(r"\.(heap|prof)(\.\d+)?$", name):
                    Dump(os.path.join(where, name)).check()


class BadNames(Watched):
    def test_names_that_cannot_be_written(self):
        """EFAULT and one line each; nothing is left, nothing that was there is harmed."""
        os.mkdir(self.path("folder"))
        os.symlink("loop.prof", self.path("loop.prof"))
        process = self.begin()
        names = ("/no/such/folder/x.prof", "folder", "loop.prof", "x" * 300, "/" + "x" * 4000, "/dev/full", "/dev/null",
                 "/proc/self/mem", "goes-on.prof/x")
        for count, name in enumerate(names, 1):
            with self.subTest(name=name[:40]):
                self.assertEqual(process.ask(f"write string prof.dump {name}"), str(errno.EFAULT))
                self.assertLessEqual(len(said(process)), count, said(process))
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode) and stat.S_ISCHR(os.stat("/dev/null").st_mode))
        self.assertEqual(os.listdir(self.path("folder")), [])
        self.assert_goes_on(process, len(names))
        os.unlink(self.path("loop.prof"))

    def test_a_fifo(self):
        """Nobody reads from it: no hang."""
        os.mkfifo(self.path("fifo.prof"))
        process = self.begin()
        self.assertEqual(process.ask("write string prof.dump fifo.prof", DUMP_SECONDS + SLACK_SECONDS),
                         str(errno.EFAULT))
        os.unlink(self.path("fifo.prof"))
        self.assert_goes_on(process, 1)

    def test_a_prefix_that_cannot_be_written(self):
        """Every automatic dump fails: by hand EFAULT; the others in silence or with one line each; status 0."""
        process = self.begin("/no/such/folder/x", ",prof_final:true,lg_prof_interval:20,prof_gdump:true")
        self.assert_answers(process, ("call prof.dump", str(errno.EFAULT)), (f"churn 40 {BLOCK}", "churned 40"))
        self.assert_goes_on(process, 20)
        self.assertEqual(process.wait(), 0, process.stderr())

    def test_no_rights(self):
        """A file that this user may not write to: EFAULT, and it is as it was."""
        with open(self.path("root.txt"), "w", encoding="ascii") as file:
            file.write("precious")
        os.chmod(self.path("root.txt"), 0o644)
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        session = self.puppet_under_heaptap("-o", "collector", env={"MALLOC_CONF": "prof:true,prof_prefix:open/dump"})
        self.assertEqual(session.ask("uid 65534"), "uid 65534")
        self.assertEqual(session.ask("dump root.txt"), f"mallctl {errno.EFAULT}")
        self.assertEqual(session.ask("dump"), "mallctl 0")
        with open(self.path("root.txt"), encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")
        os.unlink(self.path("root.txt"))


class FullDisk(Watched):
    """A file system of one page. 40 call paths take more than that: only what is written first fits."""

    def setUp(self):
        super().setUp()
        self.small = self.path("small")
        os.mkdir(self.small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "heaptap-test", self.small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.small], check=True)

    def begin(self, prefix="dump", conf=""):
        process = super().begin(prefix, conf)
        self.assert_answers(process, (f"deep 40 {BLOCK}", "kept 40"), ("write string prof.dump fits.prof", "0"))
        self.assertGreater(os.path.getsize(self.path("fits.prof")), 4 * KI)
        return process

    def test_not_even_a_page(self):
        with open(os.path.join(self.small, "full.prof"), "wb") as file:
            file.write(b"x" * 4 * KI)
        process = self.begin()
        self.assert_answers(process, ("write string prof.dump small/named.prof", str(errno.EFAULT)))
        self.assertEqual(os.listdir(self.small), ["full.prof"])
        self.assert_goes_on(process, 1)
        os.unlink(os.path.join(self.small, "full.prof"))

    def test_by_hand(self):
        """EFAULT, one line, and nothing under the name."""
        process = self.begin("small/auto")
        self.assert_answers(process, ("write string prof.dump small/named.prof", str(errno.EFAULT)))
        self.assertLessEqual(len(said(process)), 1)
        self.assert_answers(process, ("call prof.dump", str(errno.EFAULT)))
        self.assertEqual(os.listdir(self.small), [])
        self.assert_goes_on(process, 2)

    def test_final(self):
        """Nothing under the name, no summary, one line; `heaptap run` says by its status that a dump is missing."""
        process = self.begin("small/auto", ",prof_leak:true,prof_final:true")
        self.assertEqual(process.wait(), 1, process.stderr())
        self.assertEqual(os.listdir(self.small), [])
        self.assertLessEqual(len(said(process)), 1)

    def test_over_an_older_dump(self):
        """The file is there already: afterwards it is a whole dump or it is gone."""
        process = self.begin()
        with open(self.path("small/old.prof"), "w", encoding="ascii") as file:
            file.write("heap_v2/1\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n")
        self.assert_answers(process, ("write string prof.dump small/old.prof", str(errno.EFAULT)))
        self.assert_no_torn_file()
        self.assert_goes_on(process, 1)


class Stopped(Watched):
    """A collector that does not answer, or dies."""

    def begin_dump(self, process, name="never.prof"):
        """Asks for a dump while the collector is stopped; returns when the process waits for it."""
        process.signal(signal.SIGSTOP)
        process.tell(f"write string prof.dump {name}")
        fds = f"/proc/{process.target_pid}/fd"

        def waits():
            return any("eventfd" in os.readlink(os.path.join(fds, fd)) for fd in os.listdir(fds))
        wait_until(waits, "the process waits for its dump")
        return time.monotonic()

    def assert_given_up(self, begun, answer, seconds=DUMP_SECONDS):
        self.assertIn(int(answer), FAILED)
        self.assertLess(time.monotonic() - begun, seconds + SLACK_SECONDS)

    def test_killed_in_the_handshake(self):
        process = self.begin(conf=",prof_final:true,prof_leak:true")
        self.assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
        begun = self.begin_dump(process)
        process.signal(signal.SIGKILL)
        self.assert_given_up(begun, process.answer())
        self.assertEqual(len(said(process)), 1, said(process))
        self.assert_no_torn_file()
        self.assertEqual(process.ask(f"churn 10 {BLOCK}"), "churned 10")
        # Now nobody is there: at once, with the line that says how to start one; at the end too.
        begun = time.monotonic()
        self.assertEqual(process.ask("write string prof.dump nobody.prof"), str(errno.EFAULT))
        self.assertLess(time.monotonic() - begun, SLACK_SECONDS)
        self.assertIn(f"heaptap attach -p {process.target_pid}", said(process)[-1])
        process.popen.stdin.close()
        # The end of heaptap takes the kernel a while; until then the program is its child.
        process.popen.wait()
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process.target_pid, 0)[1]), 0)
        self.assertLessEqual(len(said(process)), 3, said(process))
        self.assert_no_torn_file()

    def test_stopped_for_too_long(self):
        """EAGAIN; an answer that comes too late changes nothing, and the next dump is whole."""
        process = self.begin()
        begun = self.begin_dump(process)
        self.assertEqual(process.answer(), str(errno.EAGAIN))
        self.assert_given_up(begun, errno.EAGAIN)
        process.signal(signal.SIGCONT)
        self.assert_goes_on(process, 1)
        self.assert_no_torn_file()
        self.assertFalse(os.path.exists(self.path("never.prof")))

    def test_a_handler_s_dump_interrupts_a_dump(self):
        """The same thread asks again from a signal handler while it waits: both fail within their bounds."""
        process = self.begin()
        self.assert_answers(process, ("arm write string prof.dump inner.prof", "armed"))
        begun = self.begin_dump(process, "outer.prof")
        os.kill(process.target_pid, signal.SIGUSR2)
        inner = process.answer()
        self.assertRegex(inner, "^handler ")
        self.assert_given_up(begun, inner.split()[1], QUEUE_SECONDS)
        self.assert_given_up(begun, process.answer(), QUEUE_SECONDS)
        process.signal(signal.SIGCONT)
        self.assert_goes_on(process, 2)
        self.assert_no_torn_file()

    def test_a_child_of_a_dump(self):
        """A fork in the middle of a dump: the child has no dump under way, and its own is given up in time."""
        process = self.begin()
        self.assert_answers(process, ("arm fork write string prof.dump child.prof", "armed"))
        begun = self.begin_dump(process, "parent.prof")
        os.kill(process.target_pid, signal.SIGUSR2)
        inner = process.answer()
        self.assertRegex(inner, r"^handler \d+ \d+$")
        self.assert_given_up(begun, inner.split()[2], QUEUE_SECONDS)
        self.assert_given_up(begun, process.answer(), QUEUE_SECONDS)
        process.signal(signal.SIGCONT)
        self.assert_goes_on(process, 2)
        self.assert_no_torn_file()

    def test_64_threads_and_nobody_answers(self):
        process = self.begin()
        process.signal(signal.SIGSTOP)
        begun = time.monotonic()
        word, slowest, *errors = process.ask("storm 64 storm.prof", 4 * QUEUE_SECONDS).split()
        self.assertEqual((word, len(errors)), ("storm", 64))
        self.assertLessEqual({int(number) for number in errors}, set(FAILED))
        self.assertLess(int(slowest) / 1000, QUEUE_SECONDS + SLACK_SECONDS)
        self.assertLess(time.monotonic() - begun, QUEUE_SECONDS + SLACK_SECONDS)
        process.signal(signal.SIGCONT)
        self.assert_goes_on(process, 64)
        self.assert_no_torn_file()

    def test_killed_among_64_threads(self):
        """The collector dies while it answers: what it had answered is whole, the others fail, no file is torn."""
        process = self.begin()
        process.tell("storm 64 storm.prof")
        wait_until(lambda: os.path.exists(self.path("storm.prof.0")) or any(
            name.startswith("storm.prof") for name in os.listdir(self.folder)), "the first file is there")
        process.signal(signal.SIGKILL)
        _, slowest, *errors = process.answer(4 * QUEUE_SECONDS).split()
        self.assertLessEqual({int(number) for number in errors}, {0, *FAILED})
        self.assertLess(int(slowest) / 1000, QUEUE_SECONDS + SLACK_SECONDS)
        for number, error in enumerate(errors):
            self.assertEqual(os.path.exists(self.path(f"storm.prof.{number}")), error == "0", errors)
        self.assert_no_torn_file()


class OddPlaces(Watched):
    """A collector that answers."""

    def test_64_threads_at_once(self):
        """Each call says what is true: 0 and there is a whole dump, or an error and there is none."""
        process = self.begin()
        self.assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"))
        word, slowest, *errors = process.ask("storm 64 storm.prof", 4 * QUEUE_SECONDS).split()
        self.assertEqual((word, len(errors)), ("storm", 64))
        self.assertLess(int(slowest) / 1000, QUEUE_SECONDS + SLACK_SECONDS)
        self.assertGreaterEqual(errors.count("0"), 1)
        for number, error in enumerate(errors):
            self.assertIn(int(error), (0, errno.EAGAIN))
            self.assertEqual(os.path.exists(self.path(f"storm.prof.{number}")), error == "0")
            if error == "0":
                self.assertEqual(held(self.dump_named(f"storm.prof.{number}"), "keep_blocks"), (3, 3 * BLOCK))
        self.assertLessEqual(len(said(process)), 64 - errors.count("0"))

    def test_in_a_forked_child(self):
        """With the child's PID in the name, and what it has allocated itself: its books begin with the fork."""
        process = self.begin()
        self.assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"), ("call prof.dump", "0"))
        child, error = process.ask(f"fork keep 2 {BLOCK};call prof.dump").split()
        self.assertEqual(error, "0", process.stderr())
        (dump,) = self.dumps(pid=int(child), kind="m")
        self.assertEqual(held(dump.read(), "keep_blocks"), (2, 2 * BLOCK))
        self.assert_answers(process, ("call prof.dump", "0"))
        self.assertEqual([dump.number for dump in self.dumps(pid=process.target_pid, kind="m")], [0, 1])
        self.assert_goes_on(process, 0)

    def test_in_a_signal_handler(self):
        process = self.begin()
        self.assert_answers(process, (f"keep 3 {BLOCK}", "kept 3"), ("raise write string prof.dump raised.prof", "0"))
        self.assertEqual(held(self.dump_named("raised.prof"), "keep_blocks"), (3, 3 * BLOCK))
        self.assert_goes_on(process, 0)

    def test_in_a_handler_that_interrupts_the_allocator(self):
        """20 times, wherever it is: a dump or an error, and never a hang or a broken heap."""
        process = self.begin()
        for size in (100, 20000, 1 << 22):
            errors = process.ask(f"interrupt 20 {size}", 20 * DUMP_SECONDS).split()
            self.assertEqual(len(errors), 20)
            self.assertLessEqual(set(errors), {"0", str(errno.EAGAIN)})
        self.assert_goes_on(process, 60)


class NoCollector(Case):
    """Nobody listens: an error at once, one line that says how to start one, and the program goes on."""

    needs_bpf = False

    def lonely(self, conf):
        process = self.program(target("steered"), talks=True, env={"LD_PRELOAD": LIBRARY, "MALLOC_CONF": conf})
        process.answer()
        return process

    def assert_one_line(self, process):
        self.assert_lines(process, 1)
        self.assertEqual(len(said(process)), 1)

    def assert_lines(self, process, most):
        """Each says how to start a collector."""
        self.assertLessEqual(len(said(process)), most, said(process))
        for line in said(process):
            self.assertIn(f"heaptap attach -p {process.pid}", line)

    def test_by_hand(self):
        process = self.lonely("prof:true,lg_prof_sample:0,prof_prefix:dump")
        begun = time.monotonic()
        self.assertEqual(process.ask("call prof.dump"), str(errno.EFAULT))
        self.assertLess(time.monotonic() - begun, SLACK_SECONDS)
        self.assert_one_line(process)
        self.assertEqual(process.ask(f"keep 3 {BLOCK}"), "kept 3")
        self.assertEqual(process.wait(), 0)
        self.assertEqual(self.dumps(), [])

    def test_triggers(self):
        """Interval and new maxima, 6 and more of them: one line together at most, and one at the end; no file,
        status 0."""
        for conf, lines in (("lg_prof_interval:20", 1), ("prof_gdump:true", 1), ("prof_final:true,prof_leak:true", 1),
                            ("lg_prof_interval:20,prof_gdump:true,prof_final:true,prof_leak:true", 2)):
            with self.subTest(conf=conf):
                process = self.lonely("prof:true,lg_prof_sample:0,prof_prefix:dump," + conf)
                self.assertEqual(process.ask(f"keep 100 {BLOCK}"), "kept 100")
                self.assertEqual(process.wait(), 0)
                self.assert_lines(process, lines)
                self.assertEqual(self.dumps(), [])

    def test_leak_error(self):
        """No summary can be known, so no leak is claimed: the status is the program's."""
        process = self.lonely("prof_leak_error:true,prof_final:true,lg_prof_sample:0")
        self.assertEqual(process.ask(f"keep 3 {BLOCK}"), "kept 3")
        self.assertEqual(process.wait(), 0)
        self.assert_one_line(process)

    def test_an_older_dump_is_not_harmed(self):
        with open(os.path.join(self.folder, "old.prof"), "w", encoding="ascii") as file:
            file.write("precious")
        process = self.lonely("prof:true")
        self.assertEqual(process.ask("write string prof.dump old.prof"), str(errno.EFAULT))
        with open(os.path.join(self.folder, "old.prof"), encoding="ascii") as file:
            self.assertEqual(file.read(), "precious")

    def test_64_threads(self):
        process = self.lonely("prof:true")
        _, slowest, *errors = process.ask("storm 64 storm.prof").split()
        self.assertEqual(errors, [str(errno.EFAULT)] * 64)
        self.assertLess(int(slowest) / 1000, SLACK_SECONDS)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("storm")], [])
