# SPDX-License-Identifier: Apache-2.0
"""A sample that the process has no memory for is a block of the host, and a loss that is counted and said."""

import re

import guests
import symbols
from harness import target

SIZE = 1000
LOST = "samples not recorded: a limit of the process left no memory for them"


def test_samples_without_memory_are_counted(lab):
    """Samples need slabs of their own: the host still has memory when the guest has none."""
    session = guests.run(lab, "glibc", "--exact", "--report", "always", "--", target("until_null"), str(SIZE), "24")
    session.losses_allowed = ("no_memory",)
    session.ends()
    (kept,) = map(int, re.findall(r"kept (\d+)", session.stdout()))
    dump = lab.only_dump()
    recorded, _ = symbols.live(dump, "KeepUntilNull")
    (entry,) = session.books()
    lost = entry["losses"].get("no_memory", 0)
    assert recorded + lost == kept
    assert recorded > 0 and lost > 0
    assert any(LOST in warning for warning in dump.warnings)
    assert f"{lost} {LOST}" in session.stderr()
    assert "every allocation is recorded" not in session.stderr()


def test_what_the_host_refuses_too_is_no_loss(lab):
    """A program that asks for more than there is gets NULL, and nothing is missing."""
    session = guests.run(lab, "glibc", "--exact", "--report", "always", "--", target("until_null"), str(1 << 28), "24")
    session.ends()
    assert session.stdout() == "kept 0\n"
    (entry,) = session.books()
    assert not any(entry["losses"].values())
    assert "every allocation is recorded" in session.stderr()
