# SPDX-License-Identifier: Apache-2.0
"""Tables of files that cannot be opened by name: deleted, replaced, or visible only to the process.

Recording is exact; error bounds: none.
"""

import os
import shutil
import signal

import pytest

from harness import target
from loader import LEFT, RIGHT, assert_called, preloaded_loader, call, end, open_plugin, paths, settle


def after_attach(lab, process, copies):
    session = lab.attach(process.target_pid, "--exact")
    call(process, "left_enter", 20000)
    session.signal(signal.SIGINT)
    session.ends()
    dump = lab.only_dump(process.target_pid)
    assert dump.complaints() == []
    count = sum(paths(dump, "left_inner", copies).values())
    assert count > 1000
    assert_called(dump, "left", count, copies)


def test_deleted(lab):
    copy = lab.path("libplugin.so")
    shutil.copy(LEFT, copy)
    process = preloaded_loader(lab)
    open_plugin(process, copy)
    os.unlink(copy)
    after_attach(lab, process, {copy: LEFT, f"{copy} (deleted)": LEFT})


def test_replaced(lab):
    """Another file with other frames has the name by now."""
    copy = lab.path("libplugin.so")
    shutil.copy(LEFT, copy)
    process = preloaded_loader(lab)
    open_plugin(process, copy)
    shutil.copy(RIGHT, copy + ".new")
    os.rename(copy + ".new", copy)
    after_attach(lab, process, {copy: LEFT, f"{copy} (deleted)": LEFT})


def mounts(folder):
    """Shell commands that mount something at `folder`. On an overlay, as in containers, the mapped inode differs from the
    inode under the name."""
    tmpfs = f"mount -t tmpfs none {folder}"
    layers = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
    return {"tmpfs": tmpfs,
            "overlay": f"{tmpfs} && mkdir {folder}/lower {folder}/upper {folder}/work && "
                       f"mount -t overlay none -o {layers} {folder}"}


@pytest.fixture(params=["tmpfs", "overlay"])
def mounted(request, lab):
    """The command of a loader in a mount namespace with its own plugin, and that plugin's path."""
    inside = lab.path("inside")
    os.mkdir(inside)
    script = f"{mounts(inside)[request.param]} && cp {LEFT} {inside} && exec {target('loader')}"
    return ["unshare", "--mount", "/bin/sh", "-c", script], f"{inside}/libleft.so"


def test_run_in_a_mount_namespace(lab, mounted):
    command, path = mounted
    session = lab.heaptap("run", "--exact", "--", *command, talks=True)
    session.target_pid = int(session.answer().split()[1])
    open_plugin(session, path)
    call(session, "left_enter", 1000)
    settle(session)
    dump = end(lab, session)
    assert dump.warnings == []
    assert assert_called(dump, "left", 1000, {path: LEFT}) == 1


def test_attach_in_a_mount_namespace(lab, mounted):
    command, path = mounted
    process = lab.preloaded(*command, talks=True)
    process.target_pid = int(process.answer().split()[1])
    open_plugin(process, path)
    after_attach(lab, process, {path: LEFT})
