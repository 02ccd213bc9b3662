# SPDX-License-Identifier: Apache-2.0
"""Names under which no dump can be written: an error code, a line on stderr, and the program goes on."""

import errno
import os
import stat

from allocators import assert_answers, said
from dumping import BLOCK, assert_goes_on, begin


def test_names_that_cannot_be_written(heaptap):
    """EFAULT and one line each; no files are left, and existing ones are unharmed."""
    os.mkdir(heaptap.path("folder"))
    os.symlink("loop.prof", heaptap.path("loop.prof"))
    process = begin(heaptap)
    names = ("/no/such/folder/x.prof", "folder", "loop.prof", "x" * 300, "/" + "x" * 4000, "/dev/full", "/dev/null",
             "/proc/self/mem", "goes-on.prof/x")
    for count, name in enumerate(names, 1):
        assert process.ask(f"write string prof.dump {name}") == str(errno.EFAULT)
        assert len(said(process)) == count, said(process)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode) and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.listdir(heaptap.path("folder")) == []
    assert_goes_on(heaptap, process, len(names))
    os.unlink(heaptap.path("loop.prof"))


def test_a_fifo(heaptap):
    """A FIFO without a reader: no hang."""
    os.mkfifo(heaptap.path("fifo.prof"))
    process = begin(heaptap)
    assert process.ask("write string prof.dump fifo.prof") == str(errno.EFAULT)
    os.unlink(heaptap.path("fifo.prof"))
    assert_goes_on(heaptap, process, 1)


def test_a_prefix_that_cannot_be_written(heaptap):
    """Every automatic dump fails: EFAULT by hand; only the first trigger and the final dump print a line. Status 0."""
    process = begin(heaptap, "/no/such/folder/x", ",prof_final:true,lg_prof_interval:20,prof_gdump:true")
    assert_answers(process, ("call prof.dump", str(errno.EFAULT)), (f"churn 40 {BLOCK}", "churned 40"))
    assert_goes_on(heaptap, process, 2)
    process.ends()
    assert len(said(process)) == 3, said(process)


def test_no_rights(lab, heaptap):
    """A file that this user may not write to: EFAULT, and the file is unchanged."""
    with open(heaptap.path("root.txt"), "w", encoding="ascii") as file:
        file.write("precious")
    os.chmod(heaptap.path("root.txt"), 0o644)
    os.mkdir(heaptap.path("open"))
    os.chmod(heaptap.path("open"), 0o777)
    session = lab.puppet_under_heaptap("-o", "collector", env={"MALLOC_CONF": "prof:true,prof_prefix:open/dump"})
    assert session.ask("uid 65534") == "uid 65534"
    assert session.ask("write string prof.dump root.txt") == str(errno.EFAULT)
    assert session.ask("call prof.dump") == "0"
    with open(heaptap.path("root.txt"), encoding="ascii") as file:
        assert file.read() == "precious"
    os.unlink(heaptap.path("root.txt"))
