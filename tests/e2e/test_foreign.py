# SPDX-License-Identifier: Apache-2.0
"""Another allocator that keeps to the otel_memory contract is recorded by its ELF notes, whatever its file is called.

The target's samples are every 16th block and stand for 16, so the estimates are exact. Error bound: rounding in the
dump.
"""

import signal

import symbols
from harness import Case, target


class Foreign(Case):
    def foreign(self):
        process = self.program(target("foreign"), talks=True)
        process.target_pid = int(process.answer().split()[1])
        return process

    def assert_kept(self, dump, objects, size):
        stacks = symbols.stacks_through(dump, "foreign_keep")
        estimate = dump.estimate(stacks)
        # A dump has whole numbers of samples, off by up to a half; readers scale them, objects by the mean size too.
        bound = sum(0.5 * dump.unbiased(stack.total).objects / stack.total.objects for stack in stacks) + 1
        self.assertAlmostEqual(estimate.bytes, objects * size, delta=bound * size)
        self.assertAlmostEqual(estimate.objects, objects, delta=2 * bound)
        self.assertEqual(dump.estimate(symbols.stacks_through(dump, "foreign_churn")), (0, 0))

    def test_attach(self):
        """No preload, no control block, no heaptap probe."""
        process = self.foreign()
        session = self.attach(process.target_pid)
        process.ask("keep 32000 256")
        process.ask("churn 32000 64")
        session.signal(signal.SIGINT)
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assert_kept(self.only_dump(process.target_pid, "f"), 32000, 256)
        (entry,) = session.books()
        self.assertEqual(entry["samples_allocated"], 4000)
        self.assertEqual(entry["samples_freed"], 2000)
        self.assertEqual(process.wait(), 0)

    def test_run(self):
        """Under heaptap run the program has two sampled allocators: its own and the preloaded one."""
        session = self.heaptap("run", "--", target("foreign"), talks=True)
        session.answer()
        session.ask("keep 32000 256")
        self.assertEqual(session.wait(), 0, session.stderr())
        self.assert_kept(self.only_dump(kind="f"), 32000, 256)
