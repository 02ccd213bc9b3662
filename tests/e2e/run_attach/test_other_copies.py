# SPDX-License-Identifier: Apache-2.0
"""heaptap run of programs of which some preload another copy of the library, as in a container, or none at all."""

import os
import re
import shutil

import pytest

import control
from daemons import NOBODY_ID
from harness import LIBRARY, target, wait_until
from lab import READY_BLOCKS
from symbols import kept


@pytest.fixture
def copy(lab):
    return shutil.copy(LIBRARY, lab.path("copy.so"))


def test_is_recorded_at_the_rate_of_the_command(lab, copy):
    """What it had allocated before the copy had its probes is a loss that the dump names."""
    session = lab.heaptap("run", "--exact", "--", "env", f"LD_PRELOAD={copy}", target("puppet"), talks=True)
    session.losses_allowed = ("beginning",)
    pid = int(session.answer().split()[1])
    wait_until(lambda: control.control(pid, copy).collector_pid != 0, "the collector has found it")
    assert control.control(pid, copy).collector_lg_sample == 0
    session.ask("keep 30000 100")
    session.popen.stdin.close()
    session.ends()
    dump = lab.only_dump(pid, "f")
    assert 30000 - READY_BLOCKS <= kept(dump) <= 30000
    (books,) = session.books()
    warnings = [warning for warning in dump.warnings if "beginning of the process not recorded" in warning]
    # A process that begins slowly may have its probes in time.
    assert len(warnings) == books["losses"]["beginning"]


def test_programs_without_the_library_are_named(lab, copy):
    session = lab.heaptap("run", "--exact", "--", "sh", "-c",
                          f"LD_PRELOAD= cat /dev/null; LD_PRELOAD= cat /dev/null; LD_PRELOAD={copy} ls / > /dev/null; :")
    session.losses_allowed = ("beginning",)
    session.ends()
    (line,) = [line for line in session.lines() if line.startswith("heaptap: not recorded: ")]
    assert re.match(r"heaptap: not recorded: cat \(2 times\)(, ls)?; no sampled allocator was seen there: ", line)
    # It may or may not be fast enough, but it is not forgotten.
    assert ", ls;" in line or re.search(r"(?m)^heaptap: (wrote|no dump of) .*\bls\b", session.stderr())


def test_a_set_user_id_program_is_named(lab):
    """The loader leaves LD_PRELOAD out there."""
    path = shutil.copy("/bin/true", lab.path("privileged"))
    os.chown(path, NOBODY_ID, NOBODY_ID)
    os.chmod(path, 0o4755)
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", f"{path}; :")
    session.ends()
    assert "heaptap: not recorded: privileged; no sampled allocator was seen there: " in session.stderr()


def test_nobody_is_named_without_a_reason(lab):
    """Children that go on with their parent's program, and those that exec at once, have the library."""
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", "(:); (exec true); true & wait")
    session.ends()
    assert "not recorded" not in session.stderr()
