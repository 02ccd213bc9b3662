# SPDX-License-Identifier: Apache-2.0
"""Dumps with automatic names, in folders where others may have put something under these names."""

import os
import stat

from daemons import NOBODY_ID
from dumping import begin


def test_a_link_under_the_name(heaptap):
    """It stays as it is, and so does the file that it leads to; the dump has the next name, and is its owner's alone."""
    precious = heaptap.path("precious")
    with open(precious, "w", encoding="ascii") as file:
        file.write("precious")
    process = begin(heaptap)
    names = [heaptap.path(f"dump.{process.target_pid}.{number}.m{number}.heap") for number in range(3)]
    os.symlink("precious", names[0])
    os.symlink("absent", names[1])
    assert process.ask("call prof.dump") == "0", process.stderr()
    assert stat.S_IMODE(os.lstat(names[2]).st_mode) == 0o600
    for name in names[:2]:
        assert os.path.islink(name)
        os.unlink(name)
    with open(precious, encoding="ascii") as file:
        assert file.read() == "precious"
    assert not os.path.exists(heaptap.path("absent"))
    os.unlink(precious)


def test_a_program_with_more_rights_than_its_user(lab):
    """A set-user-ID program wants no dump on its own, though the administrator's link says so: the user who starts it
    chooses the folder. Without a collector, a program that wants one says that it gets none."""
    program = lab.copy("wiki_leak_static", "leaker")
    etc = lab.path("etc")
    os.mkdir(etc)
    os.symlink("prof:true,prof_final:true", os.path.join(etc, "malloc.conf"))
    as_nobody = ("setpriv", f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups", "--inh-caps=-all")
    for mode, lines in ((0o755, 1), (0o4755, 0)):
        os.chmod(program, mode)
        process = lab.program("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', etc, *as_nobody, program)
        process.ends()
        assert process.stderr().count("<heaptap>: no dump: ") == lines, process.stderr()
