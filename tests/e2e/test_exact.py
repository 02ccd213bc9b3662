# SPDX-License-Identifier: Apache-2.0
"""--exact under eight threads that free each other's objects: every call path's totals are the truth.

Error bound: none.
"""

import re

import symbols
from harness import Case, target


class Exact(Case):
    def test_eight_threads_free_each_other_s_objects(self):
        session = self.heaptap("run", "--exact", "--", target("exact_threads"), "20000")
        self.assertEqual(session.wait(240), 0, session.stderr())
        dump = self.only_dump()
        self.assertEqual(dump.rate, 1)
        printed = re.findall(r"^(\w+) (\d+) (\d+) (\d+)$", session.stdout(), re.MULTILINE)
        self.assertEqual(len(printed), 3)
        allocated = 0
        for path, objects, size, ever in printed:
            stacks = symbols.stacks_through(dump, path)
            self.assertEqual(sum(stack.total.objects for stack in stacks), int(objects), path)
            self.assertEqual(sum(stack.total.bytes for stack in stacks), int(size), path)
            allocated += int(ever)
        self.assertEqual(allocated, 8 * 20000)
        (entry,) = session.books()
        self.assertGreaterEqual(entry["samples_allocated"], allocated)
        # Threads' stacks and the loader's blocks; not thousands.
        self.assertLess(entry["samples_allocated"], allocated + 1000)

    def test_one_thread_one_line(self):
        """Live blocks of eight threads stand under eight threads, and the threads' lines add up to the totals."""
        session = self.heaptap("run", "--exact", "--", target("exact_threads"), "2000")
        self.assertEqual(session.wait(), 0, session.stderr())
        dump = self.only_dump()
        workers = set()
        for stack in symbols.stacks_through(dump, "work"):
            workers |= {thread for thread, count in stack.threads.items() if count.objects > 0}
            self.assertEqual(sum(count.objects for count in stack.threads.values()), stack.total.objects)
            self.assertEqual(sum(count.bytes for count in stack.threads.values()), stack.total.bytes)
        self.assertEqual(len(workers), 8)
        self.assertLessEqual(workers, set(dump.threads))
