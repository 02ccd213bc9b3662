# SPDX-License-Identifier: Apache-2.0
"""Dumps that the process asks for, through mallctl and MALLOC_CONF, and the collector writes through descriptors: what
jemalloc does not have. For the rest see ../jemalloc/. Error bounds: none.
"""

import errno
import os
import shutil

import symbols
from harness import HEAPTAP, LIBRARY, find_dumps, target

CONF = {"MALLOC_CONF": "prof:true,prof_prefix:inner"}


def kept(lab, path):
    """The puppet's live objects in the dump of that name."""
    (name,) = [dump for dump in lab.dumps() if dump.path == path]
    return symbols.kept(name.read())


def test_the_process_s_folder_and_rights_count(lab):
    """The process opens the file: in its folder, with its rights; without enough rights: EFAULT."""
    os.mkdir(lab.path("elsewhere"))
    os.chmod(lab.path("elsewhere"), 0o777)
    os.mkdir(lab.path("forbidden"), 0o700)
    session = lab.puppet_under_heaptap("--exact", env=CONF)
    session.ask("keep 100 100")
    session.ask("uid 65534")
    assert session.ask(f"chdir {lab.path('elsewhere')}") == "chdir 0"
    assert session.ask("call prof.dump") == "0"
    (dump,) = find_dumps(lab.path("elsewhere"))
    assert kept(lab, dump.path) == 100
    assert os.stat(dump.path).st_uid == 65534
    assert session.ask(f"write string prof.dump {lab.path('forbidden')}/x.1.0.m0.heap") == str(errno.EFAULT)
    assert os.listdir(lab.path("forbidden")) == []


def test_no_prof_no_dump(lab):
    """Without prof:true prof.dump does not exist, as in jemalloc; the collector records anyway."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 100")
    assert session.ask("call prof.dump") == str(errno.ENOENT)
    assert session.ask("read bool opt.prof") == "0 false"
    session.ends()
    assert kept(lab, lab.only_dump(kind="f").path) == 100, session.stderr()


def test_both_under_the_default_name(lab):
    """Process and collector both use jeprof.PID.0.f.heap: it becomes one complete dump."""
    session = lab.heaptap("run", "--exact", "--", target("wiki_leak"),
                          env={"MALLOC_CONF": "prof:true,prof_final:true"})
    session.ends()
    (dump,) = lab.dumps()
    assert (dump.prefix, dump.sequence, dump.kind) == ("jeprof", 0, "f")
    assert dump.read().total == (120, 6926352)


# --- two heaptaps at the same time, each with its own process on the same library file ---


def test_each_answers_its_own_process(lab):
    """A collector leaves the request of a process that it does not record to the one that does."""
    assert_each_answers_its_own_process(lab, HEAPTAP, HEAPTAP)


def test_two_builds(lab):
    """The same with another build of heaptap in another place."""
    other = lab.path("other")
    os.mkdir(other)
    shutil.copy(HEAPTAP, other)
    os.symlink(LIBRARY, os.path.join(other, "libheaptap.so"))
    assert_each_answers_its_own_process(lab, HEAPTAP, os.path.join(other, "heaptap"))


def assert_each_answers_its_own_process(lab, *binaries):
    sessions = [lab.puppet_under_heaptap("--exact", "-o", f"outer{i}", env=CONF, binary=binary)
                for i, binary in enumerate(binaries)]
    for i, session in enumerate(sessions):
        session.ask(f"keep {100 * (i + 1)} 100")
    for i, session in enumerate(sessions):
        assert session.ask("call prof.dump") == "0"
        assert kept(lab, lab.path(f"inner.{session.target_pid}.0.m0.heap")) == 100 * (i + 1)
    for session in sessions:
        session.ends()
        assert len(session.books()) == 1


def test_an_unrecorded_process(lab):
    """A heaptap that records another process neither makes this one's dump succeed nor leaves half a file."""
    lab.puppet_under_heaptap("--exact")
    puppet = lab.preloaded_puppet(env=CONF)
    puppet.ask("keep 100 100")
    assert puppet.ask("call prof.dump") == str(errno.EFAULT)
    assert [dump.path for dump in lab.dumps(pid=puppet.target_pid)] == []
