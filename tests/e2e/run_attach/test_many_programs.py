# SPDX-License-Identifier: Apache-2.0
"""heaptap run of a script: many processes, few of them interesting."""

import os
import re

from harness import target

SCRIPT = f"/bin/true; /bin/true; {target('wiki_leak')}; :"  # the last one takes no place of the shell


def wrote(session):
    """The names of the processes with a dump."""
    return re.findall(r"(?m)^heaptap: wrote \S+: \d+ bytes in \d+ objects? live \((\S+)\)$", session.stderr())


def test_processes_without_a_sample_have_no_dump(lab):
    """At 2^40 bytes between samples, only the program that asks for every allocation has samples."""
    session = lab.heaptap("run", "--lg-sample", "40", "--", "sh", "-c", SCRIPT)
    session.ends()
    assert wrote(session) == []
    assert lab.dumps() == []
    (line,) = [line for line in session.lines() if "without a sample" in line]
    assert line == ("heaptap: no dump of 4 processes without a sample: sh, true (2 times), wiki_leak; use --exact to "
                    "record every allocation")


def test_each_dump_has_its_programs_name(lab):
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", SCRIPT)
    session.ends()
    # true allocates nothing.
    assert sorted(wrote(session)) == ["sh", "wiki_leak"]
    assert "heaptap: no dump of 2 processes that allocated nothing: true (2 times)" in session.lines()
    assert len(lab.dumps()) == 2


def test_the_dump_with_the_most_is_named(lab):
    """The last line names the dump with the most live memory. There is no leak summary without prof_leak."""
    session = lab.heaptap("run", "--exact", "--", "sh", "-c", SCRIPT)
    session.ends()
    (largest,) = [dump for dump in lab.dumps() if dump.read().total == (120, 6926352)]
    assert session.lines()[-1] == ("heaptap: 2 processes wrote dumps; most is live in "
                                   f"{os.path.basename(largest.path)} (wiki_leak, 6.6M)")
    assert "Leak approximation" not in session.stderr()


def test_only_some_programs(lab):
    session = lab.heaptap("run", "--exact", "--only", "wiki_*", "--", "sh", "-c", SCRIPT)
    session.ends()
    assert wrote(session) == ["wiki_leak"]
    assert len(lab.dumps()) == 1


def test_no_such_program(lab):
    session = lab.heaptap("run", "--only", "nobody", "--", "sh", "-c", SCRIPT)
    session.records = False
    session.ends()
    assert lab.dumps() == []
    assert "with a name like nobody" in session.stderr()


def test_the_dashes_of_the_program(lab):
    """After the program's name, dashes belong to the program."""
    session = lab.heaptap("run", "printf", "%s|", "a", "--", "b")
    session.ends()
    assert session.stdout() == "a|--|b|"
