# SPDX-License-Identifier: Apache-2.0
"""Processes in PID and mount name spaces of their own, as in containers.

Recording is exact; error bounds: none.
"""

import os
import signal

import symbols
from harness import LIBRARY, Case, target


class Namespaces(Case):
    def kept(self, dump):
        return sum(stack.total.objects for stack in symbols.stacks_through(dump, "keep_blocks"))

    def child_of(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def test_run_in_a_pid_namespace(self):
        """The process has PID 1 inside; its dump has the PID that is seen outside."""
        session = self.heaptap("run", "--exact", "--", "unshare", "--pid", "--fork", target("wiki_leak"))
        self.assertEqual(session.wait(), 0, session.stderr())
        exact = [dump for dump in self.dumps(kind="f") if dump.read().total == (120, 6926352)]
        self.assertEqual(len(exact), 1)
        self.assertNotEqual(exact[0].pid, 1)

    def test_dump_in_namespaces(self):
        """prof.dump works through descriptors: the file is in a folder that only the process sees."""
        inside = os.path.join(self.folder, "inside")
        os.mkdir(inside)
        script = f"mount -t tmpfs none {inside} && cd {inside} && {target('puppet')} && cp -r . {self.folder}/out"
        session = self.heaptap("run", "--exact", "--", "unshare", "--pid", "--fork", "--mount", "/bin/sh", "-c", script,
                               talks=True, env={"MALLOC_CONF": "prof:true,prof_prefix:inner"})
        session.answer()
        session.ask("keep 100 100")
        self.assertEqual(session.ask("dump"), "mallctl 0")
        self.assertEqual(os.listdir(inside), [])
        self.assertEqual(session.wait(), 0, session.stderr())
        (dump,) = [dump for dump in self.dumps() if dump.prefix == "inner" and dump.kind == "m"]
        self.assertEqual(self.kept(dump.read()), 100)

    def test_attach_into_a_mount_namespace(self):
        """The library lies on a file system that only the process sees."""
        inside = os.path.join(self.folder, "inside")
        os.mkdir(inside)
        script = (f"mount -t tmpfs none {inside} && cp {LIBRARY} {inside}/libother.so && "
                  f"LD_PRELOAD={inside}/libother.so exec {target('puppet')}")
        puppet = self.program("unshare", "--pid", "--fork", "--mount", "/bin/sh", "-c", script, talks=True)
        puppet.answer()
        pid = self.child_of(puppet.pid)
        session = self.attach(pid, "--exact")
        puppet.ask("keep 40000 100")
        session.signal(signal.SIGTERM)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertGreater(self.kept(self.only_dump(pid, "f")), 20000)
