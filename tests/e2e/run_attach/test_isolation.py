# SPDX-License-Identifier: Apache-2.0
"""A process that is not recorded has no costs: its probes' semaphores stay zero, so it takes no samples.

The exception is a process with the same library file as one under heaptap run, which listens to all processes with that
file, because any of them may be a child.
"""

import shutil
import signal

import control
from harness import LIBRARY


def assert_silent(pid, library):
    assert set(control.semaphores(pid, library).values()) == {0}


def other_library(lab):
    other = lab.path("libother.so")
    shutil.copy(LIBRARY, other)
    return other


def test_attach_leaves_others_on_the_same_library_alone(lab):
    bystander = lab.preloaded_puppet()
    puppet = lab.preloaded_puppet()
    session = lab.attach(puppet.target_pid, "--exact")
    assert_silent(bystander.target_pid, LIBRARY)
    late = lab.preloaded_puppet()
    assert_silent(late.target_pid, LIBRARY)
    session.signal(signal.SIGTERM)
    session.ends()


def test_run_leaves_others_alone(lab):
    """Other processes with another library file, older and younger than the recording."""
    other = other_library(lab)
    older = lab.puppet(env={"LD_PRELOAD": other})
    session = lab.puppet_under_heaptap("--exact", env={"MALLOC_CONF": "prof:true,prof_prefix:inner"})
    younger = lab.puppet(env={"LD_PRELOAD": other})
    # After a dump on request, heaptap has handled all earlier events.
    assert session.ask("call prof.dump") == "0"
    assert_silent(older.target_pid, other)
    assert_silent(younger.target_pid, other)
    session.ends()
