# SPDX-License-Identifier: Apache-2.0
"""Children are followed: each process image that is recorded has books and a final dump of its own.

Proved with exact recording and known leaks: what the parent allocated is never a child's, what the child allocated
is never the parent's. Error bound: none.
"""

import symbols
from harness import Case, target

PARENT = (1010, 1010 * 64)
CHILD = (500, 500 * 128)


class Children(Case):
    def leaks(self, dump):
        """Live (objects, bytes) of parent_leak() and child_leak() in a dump."""
        return tuple(
            (sum(stack.total.objects for stack in stacks), sum(stack.total.bytes for stack in stacks))
            for stacks in (symbols.stacks_through(dump, "parent_leak"), symbols.stacks_through(dump, "child_leak")))

    def run_way(self, way):
        session = self.heaptap("run", "--exact", "--", target("children"), way)
        self.assertEqual(session.wait(), 7, session.stderr())
        finals = self.dumps(kind="f")
        self.assertEqual(len(finals), len(self.dumps()), "other dumps than final ones")
        return session, sorted(self.leaks(dump.read()) for dump in finals)

    def assert_parent_and_child(self, way):
        session, leaks = self.run_way(way)
        self.assertEqual(leaks, [((0, 0), CHILD), (PARENT, (0, 0))])
        self.assertEqual(len(session.books()), 2)

    def test_fork(self):
        """A forked child starts with empty books: what it inherited is its parent's."""
        self.assert_parent_and_child("fork")

    def test_fork_and_exec(self):
        """The forked child has an image of its own before the exec; if that gave a dump, it is an empty one."""
        _, leaks = self.run_way("exec")
        self.assertIn((PARENT, (0, 0)), leaks)
        self.assertIn(((0, 0), CHILD), leaks)
        self.assertLessEqual(set(leaks), {(PARENT, (0, 0)), ((0, 0), CHILD), ((0, 0), (0, 0))})

    def test_vfork_and_exec(self):
        self.assert_parent_and_child("vfork")

    def test_posix_spawn(self):
        self.assert_parent_and_child("spawn")

    def test_fork_while_threads_allocate(self):
        _, leaks = self.run_way("threads")
        self.assertEqual(leaks, [((0, 0), CHILD), (PARENT, (0, 0))])

    def test_daemon(self):
        """heaptap run stays until the daemon has ended and gives the status of the command, not the daemon's."""
        session = self.heaptap("run", "--exact", "--", target("children"), "daemon")
        self.assertEqual(session.wait(), 0, session.stderr())
        leaks = sorted(self.leaks(dump.read()) for dump in self.dumps(kind="f"))
        self.assertEqual(leaks, [((0, 0), CHILD), ((1000, 64000), (0, 0))])

    def test_a_shell_s_pipeline(self):
        """Three images, three final dumps, and the output passes through."""
        session = self.heaptap("run", "--exact", "--", "/bin/sh", "-c",
                               f"{target('wiki_leak')}; {target('wiki_leak')} | cat; echo done")
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assertEqual(session.stdout(), "done\n")
        exact = [dump for dump in self.dumps() if dump.read().total.bytes == 6926352]
        self.assertEqual(len(exact), 2)

    def test_many_short_processes(self):
        """A hundred processes, eight at a time, each gone in a moment: a hundred exact dumps."""
        session = self.heaptap("run", "--exact", "--", "/bin/sh", "-c",
                               f"seq 100 | xargs -P 8 -n 1 {target('wiki_leak')}")
        self.assertEqual(session.wait(), 0, session.stderr())
        exact = [dump for dump in self.dumps(kind="f") if dump.read().total == (120, 6926352)]
        self.assertEqual(len(exact), 100)

    def test_exec_in_the_same_process(self):
        """An exec ends an image without a dump, as nothing of it is left; the next image starts with empty books."""
        session = self.puppet_under_heaptap("--exact")
        session.ask("keep 100 64")
        session.tell(f"exec {target('wiki_leak')}")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump(pid=session.target_pid, kind="f")
        self.assertEqual((dump.total.objects, dump.total.bytes), (120, 6926352))
