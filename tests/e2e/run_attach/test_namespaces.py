# SPDX-License-Identifier: Apache-2.0
"""Processes in their own PID and mount namespaces, as in containers.

Recording is exact; error bounds: none.
"""

import os
import signal

from harness import LIBRARY, target
from symbols import kept


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def test_run_in_a_pid_namespace(lab):
    """The process has PID 1 inside; its dump has the PID outside."""
    session = lab.heaptap("run", "--exact", "--", "unshare", "--pid", "--fork", target("wiki_leak"))
    session.ends()
    exact = [dump for dump in lab.dumps(kind="f") if dump.read().total == (120, 6926352)]
    assert len(exact) == 1
    assert exact[0].pid != 1


def test_dump_in_namespaces(lab):
    """prof.dump works through descriptors: the file is in a folder that only the process can see."""
    inside = lab.path("inside")
    os.mkdir(inside)
    script = f"mount -t tmpfs none {inside} && cd {inside} && {target('puppet')} && cp -r . {lab.folder}/out"
    session = lab.heaptap("run", "--exact", "--", "unshare", "--pid", "--fork", "--mount", "/bin/sh", "-c", script,
                          talks=True, env={"MALLOC_CONF": "prof:true,prof_prefix:inner"})
    session.answer()
    session.ask("keep 100 100")
    assert session.ask("call prof.dump") == "0"
    assert os.listdir(inside) == []
    session.ends()
    (dump,) = [dump for dump in lab.dumps() if dump.prefix == "inner" and dump.kind == "m"]
    assert kept(dump.read()) == 100


def test_attach_into_a_mount_namespace(lab):
    """The library is on a file system that only the process can see."""
    inside = lab.path("inside")
    os.mkdir(inside)
    script = (f"mount -t tmpfs none {inside} && cp {LIBRARY} {inside}/libother.so && "
              f"LD_PRELOAD={inside}/libother.so exec {target('puppet')}")
    puppet = lab.program("unshare", "--pid", "--fork", "--mount", "/bin/sh", "-c", script, talks=True)
    puppet.answer()
    pid = child_of(puppet.pid)
    session = lab.attach(pid, "--exact")
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGTERM)
    session.ends()
    assert kept(lab.only_dump(pid, "f")) > 20000
