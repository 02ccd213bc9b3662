# SPDX-License-Identifier: Apache-2.0
"""Requests of processes that a collector does not record, that disturb others, or that have little stack."""

import errno
import time

from harness import LIBRARY, target
from heap_v2 import Dump
from walkthrough import KI, OnHeaptap, Steering, said

# Far below the ten seconds that a process waits for a collector that is there.
AT_ONCE_SECONDS = 5
NOBODY = str(errno.EFAULT)


class Unrecorded(OnHeaptap, Steering):
    def preloaded(self, conf):
        process = self.program(target("steered"), talks=True, env={"LD_PRELOAD": LIBRARY, "MALLOC_CONF": conf})
        process.target_pid = int(process.answer().split()[1])
        return process

    def test_child_of_an_attached_process(self):
        """It has the semaphores of its parent, but nobody hears it: it is told so at once."""
        process = self.preloaded("prof:true,lg_prof_sample:0,lg_prof_interval:20")
        session = self.attach(process.target_pid, "-o", "collector")
        begun = time.monotonic()
        answer = process.ask(f"fork write string prof.dump child.prof;churn 100 {100 * KI}")
        self.assertRegex(answer, "^\\d+ churned 100$")
        answer = process.ask("fork write string prof.dump child.prof")
        self.assertRegex(answer, f"^\\d+ {NOBODY}$")
        self.assertLess(time.monotonic() - begun, AT_ONCE_SECONDS)
        self.assert_answers(process, ("write string prof.dump parent.prof", "0"))
        self.dump_named("parent.prof")
        process.popen.stdin.close()
        self.assertEqual(process.wait(), 0)
        self.assertEqual(session.wait(), 0)

    def test_triggers_beside_somebody_else_s_collector(self):
        """It hears all processes with the library, and says no; that is told once, not at each interval."""
        process = self.preloaded("prof:true,lg_prof_sample:0,lg_prof_interval:16")
        other = self.heaptap("run", "-o", "collector", "--", target("steered"), talks=True)
        other.answer()
        begun = time.monotonic()
        self.assertEqual(process.ask(f"churn 1000 {100 * KI}"), "churned 1000")
        self.assertLess(time.monotonic() - begun, AT_ONCE_SECONDS)
        self.assertLessEqual(len(said(process)), 1)
        for one in (process, other):
            one.popen.stdin.close()
            self.assertEqual(one.wait(), 0)


class Resets(OnHeaptap):
    def test_others_keep_their_profiles(self):
        """A process that resets without end takes no room from the events of others."""
        session = self.heaptap("run", "--exact", "-o", "collector", "--", "sh", "-c",
                               f"{target('resets')} 20000 & {target('wiki_leak')} & {target('wiki_leak')} & wait",
                               env={"MALLOC_CONF": "prof:true"})
        # What there was no room for: resets.
        session.losses_allowed = ("events_full",)
        self.assertEqual(session.wait(), 0, session.stderr())
        leaks = [Dump(dump.path).total for dump in self.dumps(kind="f")]
        self.assertEqual(leaks.count((120, 6926352)), 2, leaks)


class SmallStacks(OnHeaptap):
    def run_with(self, where, conf):
        process = self.start(target("small_stacks"), where, conf=conf)
        self.assertEqual(process.wait(), 0, process.stderr())
        self.assertEqual(process.stdout(), "error 0, 0 bytes written below the stack\n")

    def test_triggers_in_a_thread(self):
        self.run_with("thread", "prof:true,lg_prof_sample:0,lg_prof_interval:20")
        self.assertGreater(len(self.dumps(kind="i")), 5)

    def test_high_water_in_a_thread(self):
        self.run_with("thread", "prof:true,lg_prof_sample:0,prof_gdump:true")
        self.assertGreater(len(self.dumps(kind="u")), 5)

    def test_dump_in_a_handler(self):
        self.run_with("handler", "prof:true,lg_prof_sample:0")
        self.assertEqual(len(self.dumps(kind="m")), 1)
