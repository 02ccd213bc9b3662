# SPDX-License-Identifier: Apache-2.0
"""Dumps with automatic names, in folders where others may have put something under these names."""

import os
import shutil
import stat

from daemons import NOBODY_ID
from dumping import begin
from harness import target


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


def dumps_as_nobody(lab, program, folder):
    """What the program leaves that an ordinary user starts in the folder, where /etc/malloc.conf asks for a dump at exit."""
    etc = lab.path("etc")
    os.makedirs(etc, exist_ok=True)
    os.makedirs(folder)
    os.chown(folder, NOBODY_ID, NOBODY_ID)
    link = os.path.join(etc, "malloc.conf")
    if not os.path.islink(link):
        os.symlink("prof:true,lg_prof_sample:0,prof_final:true", link)
    as_nobody = ("setpriv", f"--reuid={NOBODY_ID}", f"--regid={NOBODY_ID}", "--clear-groups", "--inh-caps=-all")
    shell = 'mount --bind "$0" /etc && cd "$1" && shift && exec "$@"'
    session = lab.heaptap("run", "--exact", "-o", lab.path("collector"), "--", *as_nobody, program,
                          before=("unshare", "-m", "sh", "-c", shell, etc, folder))
    session.ends()
    return os.listdir(folder)


def test_a_program_with_more_rights_than_its_user(lab):
    """A set-user-ID program makes no dump on its own: the user who starts it chooses the folder."""
    program = lab.copy("wiki_leak_static", "leaker")
    assert dumps_as_nobody(lab, program, lab.path("plain")) != []
    os.chmod(program, 0o4755)
    assert dumps_as_nobody(lab, program, lab.path("privileged")) == []
    shutil.rmtree(lab.path("plain"))
