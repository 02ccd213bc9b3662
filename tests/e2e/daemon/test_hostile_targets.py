# SPDX-License-Identifier: Apache-2.0
"""Processes that would harm the root daemon that records them.

Each test also sees that somebody else is served as before.
"""

import errno
import os
import re
import shutil
import signal
import time

from harness import DumpName, target, wait_until
from security import PROMPT_SECONDS, assert_prompt, keeping_puppet, recorded, running, start_hostile, start_talking

NOBODY = 65534


def hexadecimal(name):
    return name.encode().hex()


def test_lies_about_the_control_block(lab, start_daemon):
    """Each process that lies is named once, however often it does it."""
    daemon = start_daemon("--exact")
    with running(lab, daemon):
        # The first one that maps the file shows it to the collector.
        recorded(daemon, start_hostile(lab))
        for lie in ("garbage", "null", "kernel", "noncanonical"):
            hostile = start_hostile(lab)
            hostile.ask(f"flood {lie} 3000")
            said = f"process {hostile.pid} has no valid control block"
            daemon.wait_said(said)
            hostile.ask(f"start {lie}")
            assert_prompt(daemon)
            hostile.ends()
            assert daemon.process.stderr().count(said) == 1


def test_control_block_that_is_not_there(lab, start_daemon):
    """The page of the control block faults for ever; who asks for what is in it is told so."""
    daemon = start_daemon("--exact")
    with running(lab, daemon):
        hostile = start_hostile(lab)
        recorded(daemon, hostile)
        assert hostile.ask("start absent") == "started absent"
        hostile.ask("sample 3")
        begin = time.monotonic()
        assert daemon.get(f"/pid/{hostile.pid}/allocator.json").status != 200
        daemon.get(f"/pid/{hostile.pid}/mtev/memory.json")
        assert time.monotonic() - begin < PROMPT_SECONDS
        assert daemon.request("POST", f"/pid/{hostile.pid}/active?value=off").status != 200
        assert daemon.process.stderr().count("does not let its memory be had") <= 1


def test_requests_without_end(lab, start_daemon):
    """Requests that nobody waits for cost no profile each: others are served meanwhile."""
    daemon = start_daemon("--exact", losses_allowed=("events_full",))
    with running(lab, daemon):
        floods = [start_hostile(lab) for _ in range(2)]
        for hostile in floods:
            hostile.ask("sample 3")
            hostile.tell("requests 20000")
        assert_prompt(daemon)
        for hostile in floods:
            hostile.answer()
            hostile.ends()


def test_descriptors_for_a_dump(lab, start_daemon):
    """Only a regular file that may be written is written to."""
    daemon = start_daemon("--exact")
    with running(lab, daemon):
        hostile = start_hostile(lab)
        hostile.ask("sample 3")
        recorded(daemon, hostile)
        with open(f"/proc/{hostile.pid}/oom_score_adj", encoding="ascii") as file:
            before = file.read()
        expected = dict.fromkeys(("readonly", "pipe", "socket", "proc", "device", "folder", "epoll", "closed"),
                                 errno.EBADF)
        expected["sealed"] = errno.EPERM
        for kind, error in expected.items():
            assert hostile.ask(f"ask {kind}") == f"answered {error}", kind
        with open(f"/proc/{hostile.pid}/oom_score_adj", encoding="ascii") as file:
            assert file.read() == before
        path = lab.path("asked")
        assert hostile.ask(f"ask {path}") == "answered 0"
        with open(path, encoding="ascii") as file:
            assert file.read().startswith("heap_v2/")
        hostile.ends()


def test_symlinked_prefix(lab, start_daemon):
    """A process's own dump goes where the process itself may write, whatever its prefix points to."""
    precious = lab.path("precious")
    with open(precious, "w", encoding="ascii") as file:
        file.write("precious")
    os.chmod(precious, 0o600)
    mine = lab.path("mine")
    os.mkdir(mine)
    os.chown(mine, NOBODY, NOBODY)
    daemon = start_daemon("--exact")
    with running(lab, daemon):
        puppet = keeping_puppet(lab, env={"MALLOC_CONF": f"prof:true,lg_prof_sample:0,prof_prefix:{mine}/p"}, cwd=mine,
                                user=NOBODY, group=NOBODY, extra_groups=[])
        for sequence in range(3):
            os.symlink(precious, os.path.join(mine, f"p.{puppet.pid}.{sequence}.m{sequence}.heap"))
        puppet.ask("dump")
        puppet.ask(f"dump {mine}/p.{puppet.pid}.0.m0.heap")
        with open(precious, encoding="ascii") as file:
            assert file.read() == "precious"
        shutil.rmtree(mine)


def test_names(lab, start_daemon):
    """A command is any bytes; the name of its dump, and what is said of it, are plain."""
    daemon = start_daemon("--exact")
    names = {"/../../x": None, "..": None, ".hidden": None, "a\nheaptap: lie": None, "ä" * 7: None, "'$(id)`": None}
    for name in names:
        hostile = start_hostile(lab)
        hostile.ask(f"name {hexadecimal(name)}")
        # Of the first one the collector sees the file late.
        wait_until(lambda: hostile.ask("sample 3") and
                   daemon.processes().get(hostile.pid, {}).get("samples"), "it has samples")
        assert re.search(r"^[ -~]*$", daemon.processes()[hostile.pid]["command"])
        listed = daemon.client("list")
        assert len(re.findall(rf"^ *{hostile.pid} .*$", listed, re.MULTILINE)) == 1, listed
        assert re.search(r"\A[ -~\n]*\Z", listed), listed
        assert "\nheaptap: lie" not in listed
        hostile.signal(signal.SIGSEGV)
        hostile.ends(-signal.SIGSEGV)
        names[name] = hostile.pid
    for name, pid in names.items():
        path = daemon.wait_said(rf"^heaptap: wrote (\S+\.{pid}\.0\.f\.heap): ").group(1)
        assert os.path.dirname(path) == daemon.state_folder, name
        assert re.search(r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", os.path.basename(path)), os.path.basename(path)
        assert DumpName(path).pid == pid
        assert os.path.isfile(path)
    assert not re.search(r"(?m)^heaptap: lie", daemon.process.stderr()), daemon.process.stderr()


def test_mappings_that_nobody_hears_of(lab, start_daemon):
    """A process that maps files without end hides from the collector what others map; it looks itself then."""
    daemon = start_daemon("--exact")
    with running(lab, daemon):
        noise = [start_hostile(lab, preexec_fn=lambda cpu=cpu: os.sched_setaffinity(0, {cpu}))
                 for cpu in os.sched_getaffinity(0)]
        daemon.process.signal(signal.SIGSTOP)
        for hostile in noise:
            hostile.ask("map 20000")
        puppet = keeping_puppet(lab)
        daemon.process.signal(signal.SIGCONT)
        path = lab.path("mapped")

        def names():
            if puppet.pid not in daemon.processes():
                return False
            daemon.dump(puppet.pid, path)
            with open(path, encoding="ascii") as file:
                return os.path.realpath(target("puppet")) in file.read()
        wait_until(names, "the dump says where its code is")


def test_probe_files_of_a_user(lab, start_daemon):
    """Files with probes that a user makes are attached to up to a bound; the machine's are all the same."""
    daemon = start_daemon("--exact")
    with running(lab, daemon):
        path = lab.path("many")
        shutil.copy(target("hostile"), path)
        os.chown(path, NOBODY, NOBODY)
        copy = start_talking(lab, path, user=NOBODY, group=NOBODY, extra_groups=[])
        copy.ask("sample 1")
        recorded(daemon, copy)
        copy.ends()
