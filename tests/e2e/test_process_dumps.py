# SPDX-License-Identifier: Apache-2.0
"""Dumps that the process asks for, through mallctl and MALLOC_CONF, answered by the collector through descriptors.

Names are the process's: prof_prefix, or the name given. Error bounds: none.
"""

import errno
import os
import shutil
import time

import symbols
from harness import HEAPTAP, LIBRARY, Case, target

CONF = {"MALLOC_CONF": "prof:true,prof_prefix:inner"}


class ProcessDumps(Case):
    def kept(self, path):
        (name,) = [dump for dump in self.dumps() if dump.path == path]
        dump = name.read()
        return sum(stack.total.objects for stack in symbols.stacks_through(dump, "keep_blocks"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_without_a_name(self):
        """inner.PID.0.m0.heap, inner.PID.1.m1.heap, in the process's current folder, when mallctl returns."""
        session = self.puppet_under_heaptap("--exact", env=CONF)
        for number, kept in enumerate((100, 200)):
            session.ask("keep 100 100")
            self.assertEqual(session.ask("dump"), "mallctl 0")
            self.assertEqual(self.kept(self.path(f"inner.{session.target_pid}.{number}.m{number}.heap")), kept)
        self.assertEqual(session.wait(), 0, session.stderr())

    def test_with_a_name(self):
        """The name is taken as given and takes no sequence number."""
        session = self.puppet_under_heaptap("--exact", env=CONF)
        session.ask("keep 100 100")
        name = self.path("named.1.0.m0.heap")
        self.assertEqual(session.ask(f"dump {name}"), "mallctl 0")
        self.assertEqual(self.kept(name), 100)
        self.assertEqual(session.ask("dump"), "mallctl 0")
        self.assertEqual(self.kept(self.path(f"inner.{session.target_pid}.0.m0.heap")), 100)

    def test_the_process_s_folder_and_rights_count(self):
        """The file is opened by the process: in its folder; with its rights, which may not be enough: EFAULT."""
        os.mkdir(self.path("elsewhere"))
        os.chmod(self.path("elsewhere"), 0o777)
        os.mkdir(self.path("forbidden"), 0o700)
        session = self.puppet_under_heaptap("--exact", env=CONF)
        session.ask("keep 100 100")
        session.ask("uid 65534")
        self.assertEqual(session.ask(f"chdir {self.path('elsewhere')}"), "chdir 0")
        self.assertEqual(session.ask("dump"), "mallctl 0")
        (dump,) = self.dumps(folder=self.path("elsewhere"))
        self.assertEqual(self.kept(dump.path), 100)
        self.assertEqual(os.stat(dump.path).st_uid, 65534)
        self.assertEqual(session.ask(f"dump {self.path('forbidden')}/x.1.0.m0.heap"), f"mallctl {errno.EFAULT}")
        self.assertEqual(os.listdir(self.path("forbidden")), [])

    def test_a_name_that_cannot_be_opened(self):
        session = self.puppet_under_heaptap("--exact", env=CONF)
        self.assertEqual(session.ask("dump /no/such/folder/x.heap"), f"mallctl {errno.EFAULT}")
        session.ask("keep 10 100")
        self.assertEqual(session.ask("dump"), "mallctl 0")

    def test_no_prof_no_dump(self):
        """Without prof:true prof.dump does not exist, as in jemalloc; the collector records nevertheless."""
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 100 100")
        self.assertEqual(session.ask("dump"), f"mallctl {errno.ENOENT}")
        self.assertEqual(session.ask("is opt.prof"), "mallctl 0 0")
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(self.kept(self.only_dump(kind="f").path), 100)

    def test_prof_active(self):
        """prof_active:false records nothing until the process turns it on, and nothing after it turned it off."""
        session = self.puppet_under_heaptap("--exact", env={"MALLOC_CONF": "prof:true,prof_active:false"})
        session.ask("keep 30000 100")
        self.assertEqual(session.ask("is prof.active"), "mallctl 0 0")
        self.assertEqual(session.ask("active 1"), "mallctl 0")
        self.assertEqual(session.ask("is prof.active"), "mallctl 0 1")
        session.ask("keep 40000 200")
        self.assertEqual(session.ask("active 0"), "mallctl 0")
        session.ask("keep 40000 400")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(kind="f")
        sizes = {}
        for stack in symbols.stacks_through(dump, "keep_blocks"):
            sizes["objects"] = sizes.get("objects", 0) + stack.total.objects
            sizes["bytes"] = sizes.get("bytes", 0) + stack.total.bytes
        # A thread notices a change when its free list of that class is used up.
        self.assertGreater(sizes["objects"], 40000 - 16384)
        self.assertLessEqual(sizes["objects"], 40000 + 16384)

    def test_final_dump(self):
        """prof_final:true: the process's own final dump, and the collector's."""
        session = self.puppet_under_heaptap("--exact", "-o", "outer",
                                            env={"MALLOC_CONF": "prof:true,prof_final:true,prof_prefix:inner"})
        session.ask("keep 100 100")
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(self.kept(self.path(f"inner.{session.target_pid}.0.f.heap")), 100)

    def test_both_under_the_default_name(self):
        """Process and collector both say jeprof.PID.0.f.heap: one whole dump is there, nothing is broken."""
        session = self.heaptap("run", "--exact", "--", target("wiki_leak"),
                               env={"MALLOC_CONF": "prof:true,prof_final:true"})
        self.assertEqual(session.wait(), 0, session.stderr())
        for dump in self.dumps(kind="f"):
            self.assertEqual(dump.read().total.bytes, 6926352)
        self.assertGreaterEqual(len(self.dumps(kind="f")), 1)


class TwoCollectors(Case):
    """Two heaptaps at the same time, each with a process of its own on the same library file."""

    def test_each_answers_its_own_process(self):
        """A collector that does not follow a process leaves its request to the one that does."""
        self.assert_each_answers_its_own_process(HEAPTAP, HEAPTAP)

    def test_two_builds(self):
        """The same when one is another build of heaptap, at another place."""
        other = os.path.join(self.folder, "other")
        os.mkdir(other)
        shutil.copy(HEAPTAP, other)
        os.symlink(LIBRARY, os.path.join(other, "libheaptap.so"))
        self.assert_each_answers_its_own_process(HEAPTAP, os.path.join(other, "heaptap"))

    def assert_each_answers_its_own_process(self, *binaries):
        sessions = [self.puppet_under_heaptap("--exact", "-o", f"outer{i}", env=CONF, binary=binary)
                    for i, binary in enumerate(binaries)]
        for i, session in enumerate(sessions):
            session.ask(f"keep {100 * (i + 1)} 100")
        for i, session in enumerate(sessions):
            self.assertEqual(session.ask("dump"), "mallctl 0")
            path = os.path.join(self.folder, f"inner.{session.target_pid}.0.m0.heap")
            dump = next(name for name in self.dumps() if name.path == path).read()
            kept = symbols.stacks_through(dump, "keep_blocks")
            self.assertEqual(sum(stack.total.objects for stack in kept), 100 * (i + 1))
        for session in sessions:
            self.assertEqual(session.wait(), 0, session.stderr())
            self.assertEqual(len(session.books()), 1)

    def test_a_process_that_nobody_follows(self):
        """A heaptap that records another process does not make this one's dump succeed or leave half a file."""
        self.puppet_under_heaptap("--exact")
        puppet = self.preloaded_puppet(env=CONF)
        puppet.ask("keep 100 100")
        self.assertNotEqual(puppet.ask("dump"), "mallctl 0")
        self.assertEqual([dump.path for dump in self.dumps(pid=puppet.target_pid)], [])


class NoCollector(Case):
    """mallctl("prof.dump") with nobody listening: an error within its bound, and one line."""

    needs_bpf = False

    def test_dump_fails_in_time(self):
        puppet = self.preloaded_puppet(env=CONF)
        puppet.ask("keep 100 100")
        begun = time.monotonic()
        answer = puppet.ask("dump")
        self.assertNotEqual(answer, "mallctl 0")
        # The contract's bound is 10 s; with nobody at the probe there is nothing to wait for.
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(puppet.wait(), 0)
        lines = puppet.stderr().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], "^<heaptap>: ")
        self.assertEqual(self.dumps(), [])

    def test_bad_options_are_said_and_the_program_goes_on(self):
        """jemalloc's messages, with heaptap's name."""
        for conf, line in (("foo:bar", "<jemalloc>: Invalid conf pair: foo:bar"),
                           ("prof:yes", "<jemalloc>: Invalid conf value: prof:yes")):
            with self.subTest(conf=conf):
                process = self.program(target("contexts"), "3", env={"LD_PRELOAD": LIBRARY, "MALLOC_CONF": conf})
                self.assertEqual(process.wait(), 0)
                self.assertEqual(process.stdout(), "8\n")
                self.assertIn(line, process.stderr().splitlines())
