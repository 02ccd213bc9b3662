# SPDX-License-Identifier: Apache-2.0
"""A process that nobody records pays nothing: its probes' semaphores stay zero, so that it takes no samples.

The exception is a process on the same library file as one under heaptap run, which listens to all processes on that
file, because a child that it follows may be any of them.
"""

import os
import shutil
import signal

import control
from harness import LIBRARY, Case


class Isolation(Case):
    def assert_silent(self, pid, library):
        self.assertEqual(set(control.semaphores(pid, library).values()), {0})

    def other_library(self):
        other = os.path.join(self.folder, "libother.so")
        shutil.copy(LIBRARY, other)
        return other

    def test_attach_leaves_others_on_the_same_library_alone(self):
        bystander = self.preloaded_puppet()
        puppet = self.preloaded_puppet()
        session = self.attach(puppet.target_pid, "--exact")
        self.assert_silent(bystander.target_pid, LIBRARY)
        late = self.preloaded_puppet()
        self.assert_silent(late.target_pid, LIBRARY)
        session.signal(signal.SIGTERM)
        self.assertEqual(session.wait(), 0, session.stderr())

    def test_run_leaves_others_alone(self):
        """Bystanders on another library file, older and younger than the recording."""
        other = self.other_library()
        older = self.puppet(env={"LD_PRELOAD": other})
        session = self.puppet_under_heaptap("--exact", env={"MALLOC_CONF": "prof:true,prof_prefix:inner"})
        younger = self.puppet(env={"LD_PRELOAD": other})
        # A dump that the process asks for: whatever heaptap heard of before is behind it then.
        self.assertEqual(session.ask("dump"), "mallctl 0")
        self.assert_silent(older.target_pid, other)
        self.assert_silent(younger.target_pid, other)
        self.assertEqual(session.wait(), 0, session.stderr())
