# SPDX-License-Identifier: Apache-2.0
"""When dumps are written and what they are called: at the end, when killed, on SIGUSR1, high-water, interval.

The puppet allocates step by step and the test waits for each dump, so nothing depends on time. Recording is exact;
error bounds: none.
"""

import os
import signal

import symbols
from harness import Case, target, wait_until

MI = 1 << 20


class Dumps(Case):
    def kept(self, dump):
        """Live objects and bytes of the puppet's keep_blocks()."""
        stacks = symbols.stacks_through(dump, "keep_blocks")
        return sum(stack.total.objects for stack in stacks), sum(stack.total.bytes for stack in stacks)

    def wait_for_dumps(self, count, **which):
        return wait_until(lambda: len(self.dumps(**which)) >= count and self.dumps(**which), f"{count} dumps {which}")

    def test_killed_in_the_middle(self):
        """kill -9 of the target: the final dump is there and whole, and the books balance."""
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 5000 100")
        session.ask("churn 5000 100")
        os.kill(session.target_pid, signal.SIGKILL)
        self.assertEqual(session.wait(), 128 + signal.SIGKILL, session.stderr())
        self.assertEqual(self.kept(self.only_dump(kind="f")), (5000, 5000 * 112))

    def test_killed_while_it_allocates(self):
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 1000 100")
        session.tell("churn 1000000000 100")
        session.signal(signal.SIGUSR1)
        self.wait_for_dumps(1, kind="m")
        os.kill(session.target_pid, signal.SIGKILL)
        self.assertEqual(session.wait(), 128 + signal.SIGKILL, session.stderr())
        self.assertEqual(self.kept(self.only_dump(kind="f")), (1000, 112000))

    def test_sigusr1_twice(self):
        """Two manual dumps, sequence 0 and 1, each with what was live then; the final one has sequence 2."""
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 100 100")
        session.signal(signal.SIGUSR1)
        session.wait_said(r"^heaptap: wrote .*\.m0\.heap: \d+ bytes in \d+ objects live")
        session.ask("keep 50 100")
        session.signal(signal.SIGUSR1)
        session.wait_said(r"^heaptap: wrote .*\.m1\.heap: \d+ bytes in \d+ objects live")
        session.ask("drop")
        self.assertEqual(session.wait(), 0, session.stderr())
        names = [os.path.basename(dump.path) for dump in self.dumps()]
        pid = session.target_pid
        self.assertEqual(names, [f"jeprof.{pid}.0.m0.heap", f"jeprof.{pid}.1.m1.heap", f"jeprof.{pid}.2.f.heap"])
        self.assertEqual([self.kept(dump.read())[0] for dump in self.dumps()[:2]], [100, 150])
        if len(self.dumps()) == 3:
            self.assertEqual(self.kept(self.dumps()[2].read())[0], 0)

    def test_prefix(self):
        """-o names the dumps, folders in it must exist; the current folder is left alone."""
        os.mkdir(os.path.join(self.folder, "out"))
        session = self.heaptap("run", "-o", "out/my.profile", "--exact", "--", target("wiki_leak"))
        self.assertEqual(session.wait(), 0, session.stderr())
        (name,) = os.listdir(os.path.join(self.folder, "out"))
        self.assertRegex(name, r"^my\.profile\.\d+\.0\.f\.heap$")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".heap")], [])

    def test_high_water(self):
        """--high-water=45: a dump when live memory passes its last high mark by 45 %, from 1 MiB on, and only then."""
        session = self.puppet_under_heaptap("--exact", "--high-water=45")
        expected, mark = [], 1
        for live in range(1, 33):
            session.ask(f"keep 1 {MI}")
            if live >= mark:
                expected.append(live)
                mark = live * 1.45
                self.wait_for_dumps(len(expected), kind="u")
        session.ask("drop")
        session.ask(f"keep 32 {MI}")  # no new high
        self.assertEqual(session.wait(), 0, session.stderr())
        found = self.dumps(kind="u")
        self.assertEqual([dump.number for dump in found], list(range(len(expected))))
        self.assertEqual([dump.read().total.bytes // MI for dump in found], expected)

    def test_interval(self):
        """--interval: one dump for every 4 MiB allocated, freed or not."""
        session = self.puppet_under_heaptap("--exact", "--interval", 4 * MI)
        for step in range(3):
            session.ask(f"churn 9 {MI // 2}")
            self.wait_for_dumps(step + 1, kind="i")
        self.assertEqual(session.wait(), 0, session.stderr())
        found = self.dumps(kind="i")
        self.assertEqual(len(found), 3, [dump.path for dump in found])
        self.assertEqual([dump.number for dump in found], [0, 1, 2])
        self.assertEqual([dump.sequence for dump in found], [0, 1, 2])

    def test_rate_precedence(self):
        """A flag of the command wins over MALLOC_CONF, which wins over the default: heap_v2/RATE says which."""
        for rate, flags, conf in (
                (1 << 19, (), None), (1 << 12, (), "lg_prof_sample:12"), (1 << 10, ("--lg-sample", "10"), None),
                (1 << 10, ("--lg-sample", "10"), "prof:true,lg_prof_sample:12"),
                (1, ("--exact",), "lg_prof_sample:12")):
            with self.subTest(flags=flags, conf=conf):
                prefix = f"rate{rate}-{len(flags)}-{len(conf or '')}"
                session = self.heaptap("run", "-o", prefix, *flags, "--", target("wiki_leak"),
                                       env={"MALLOC_CONF": conf})
                self.assertEqual(session.wait(), 0, session.stderr())
                (dump,) = [dump for dump in self.dumps() if dump.prefix == prefix]
                self.assertEqual(dump.read().rate, rate)

    def test_an_older_dump_of_that_name_is_not_half_overwritten(self):
        """A dump appears under its name whole or not at all: a reader never finds half of one."""
        session = self.heaptap("run", "--exact", "--", target("contexts"), "12", talks=True)
        broken = []
        while session.popen.poll() is None:
            for dump in self.dumps():
                try:
                    dump.read()
                except Exception as error:  # anything that a reader would stumble over
                    broken.append(f"{dump.path}: {error}")
        self.assertEqual(broken, [])
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertGreaterEqual(self.only_dump().total.objects, 4096)


class CppProgram(Case):
    def test_operator_new_s_callers(self):
        """C++ call paths begin with the caller of operator new, not inside the allocator."""
        session = self.heaptap("run", "--exact", "--", target("cpp_program"))
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump()
        text = self.reader("jeprof", "--text", "--show_bytes", target("cpp_program"), self.dumps()[0].path)
        self.assertRegex(text, r"build_index|allocate|Rb_tree")
        for stack in dump.stacks:
            mapping = dump.mapping(stack.frames[0])
            self.assertFalse(mapping and mapping.path.endswith("libheaptap.so"), f"own frame left: {stack}")
