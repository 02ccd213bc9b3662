# SPDX-License-Identifier: Apache-2.0
"""Bad input: one clear line with the error and the remedy, and the right exit status.

1 failure, 2 usage, 3 no such target, 4 permission (naming the capability).
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from descriptors import descriptors
from harness import LIBRARY, target, wait_until
from lab import READY_BLOCKS, assert_one_clear_line
from symbols import kept


@pytest.mark.without_bpf
@pytest.mark.parametrize("arguments", (
    [], ["no-such-command"], ["run"], ["run", "--"], ["run", "--no-such-flag", "--", "true"],
    ["run", "--exact", "--lg-sample", "10", "--", "true"], ["run", "--lg-sample", "x", "--", "true"],
    ["run", "--lg-sample", "64", "--", "true"], ["run", "--lg-sample", "-1", "--", "true"],
    ["run", "--interval", "0", "--", "true"], ["run", "--high-water=x", "--", "true"], ["attach"], ["attach", "-p"],
    ["attach", "-p", "abc"], ["attach", "-p", "0"], ["attach", "-p", "-1"], ["attach", "-p", "1", "-d", "x"],
    ["doctor", "--no-such-flag"]), ids=" ".join)
def test_usage(lab, arguments):
    session = lab.heaptap(*arguments)
    session.records = False
    session.ends(2)
    assert re.search(r"(?m)^heaptap: |[Uu]sage", session.stderr()), session.stderr()
    assert not re.search("terminate called|Aborted|core dumped", session.stderr()), session.stderr()


@pytest.mark.without_bpf
@pytest.mark.parametrize("arguments", (["--help"], ["run", "--help"], ["attach", "--help"], ["doctor", "--help"]),
                         ids=" ".join)
def test_help_is_no_error(lab, arguments):
    session = lab.heaptap(*arguments)
    session.records = False
    session.ends()
    assert "heaptap" in session.stdout()


def test_unknown_pid(lab):
    gone = lab.program("true")
    gone.wait()
    session = lab.heaptap("attach", "-p", gone.pid)
    assert_one_clear_line(session, 3, str(gone.pid))


def test_a_zombie(lab):
    """A process that has exited but was not waited for."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert_one_clear_line(lab.heaptap("attach", "-p", child), 3, str(child))
    finally:
        os.waitpid(child, 0)


def test_a_kernel_thread(lab):
    assert_one_clear_line(lab.heaptap("attach", "-p", 2), 3, "process 2 has no memory of its own: it is a kernel thread")


def test_without_the_library(lab):
    sleeper = lab.program("sleep", "1000")
    session = lab.heaptap("attach", "-p", sleeper.pid)
    assert_one_clear_line(session, 3, rf"process {sleeper.pid} \(sleep\) has no sampled allocator: .*"
                                      rf"LD_PRELOAD={re.escape(LIBRARY)}$")
    # Without a daemon.
    for command in (["stats"], ["rate", "19"], ["active", "on"]):
        words = [command[0], sleeper.pid, *command[1:], "--socket", lab.path("none")]
        assert_one_clear_line(lab.heaptap(*words), 3, rf"process {sleeper.pid} \(sleep\) has no sampled allocator: .*"
                                                      rf"LD_PRELOAD={re.escape(LIBRARY)} ")
    assert sleeper.alive()


def has_maps(session):
    """Whether the process has eBPF maps open."""
    return any("map_id" in fields for fields in descriptors(session.pid))


@pytest.mark.parametrize("is_there", (lambda session: True, has_maps), ids=["at once", "in the middle"])
def test_the_target_exits_during_attach(lab, is_there):
    """No such target, at whatever moment the target exits."""
    puppet = lab.preloaded_puppet()
    session = lab.heaptap("attach", "-p", puppet.target_pid)
    wait_until(lambda: is_there(session), "that moment")
    session.signal(signal.SIGSTOP)
    os.kill(puppet.target_pid, signal.SIGKILL)
    puppet.wait()
    session.signal(signal.SIGCONT)
    assert_one_clear_line(session, 3, f"no process {puppet.target_pid}")


def test_folder_that_does_not_exist(lab):
    """The error comes before the command starts."""
    session = lab.heaptap("run", "-o", "no/such/folder/x", "--", "touch", "started")
    assert_one_clear_line(session, 1, "no/such/folder")
    assert not os.path.exists(lab.path("started"))


def test_folder_that_is_a_file(lab):
    session = lab.heaptap("run", "-o", "/etc/passwd/x", "--", "true")
    assert_one_clear_line(session, 1, "/etc/passwd")


def test_folder_that_nobody_can_write(lab):
    session = lab.heaptap("run", "-o", "/proc/self/x", "--", "true")
    assert_one_clear_line(session, 1, "/proc/self")


def test_attach_with_an_unwritable_folder(lab):
    puppet = lab.preloaded_puppet()
    session = lab.heaptap("attach", "-p", puppet.target_pid, "-o", "no/such/folder/x")
    assert_one_clear_line(session, 1, "no/such/folder")
    assert puppet.ask("keep 1 1") == "kept 1"


def assert_failed_without_a_trace(session, folder):
    """Status 1, a line with the reason, and an empty folder: neither half a dump nor a temporary file."""
    session.ends(1)
    assert re.search(r"(?mi)^heaptap: .*(space|too large|cannot write)", "\n".join(session.lines())), session.lines()
    assert os.listdir(folder) == []


def test_disk_full(lab, request):
    """A tmpfs of 64 KiB and a dump of a megabyte."""
    folder = tempfile.mkdtemp(dir=lab.folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "heaptap-test", folder], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", folder], check=False))
    session = lab.heaptap("run", "--exact", "-o", f"{folder}/x", "--", target("contexts"), "12")
    assert_failed_without_a_trace(session, folder)


def test_file_size_limit(lab):
    """RLIMIT_FSIZE of 64 KiB: the write fails, SIGXFSZ does not kill."""
    folder = tempfile.mkdtemp(dir=lab.folder)
    session = lab.heaptap("run", "--exact", "-o", f"{folder}/x", "--", target("contexts"), "12",
                          before=["prlimit", "--fsize=65536"])
    assert_failed_without_a_trace(session, folder)


def test_library_replaced_on_disk(lab):
    """The process uses the old file, which no longer has a name: it is recorded anyway."""
    old = lab.path("libold.so")
    shutil.copy(LIBRARY, old)
    puppet = lab.puppet(env={"LD_PRELOAD": old})
    shutil.copy(LIBRARY, old + ".new")
    os.rename(old + ".new", old)
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("keep 40000 100")
    session.signal(signal.SIGTERM)
    session.ends()
    assert 40000 - READY_BLOCKS <= kept(lab.only_dump()) <= 40000
