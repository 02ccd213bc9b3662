# SPDX-License-Identifier: Apache-2.0
"""Processes that attack the root daemon that records them.

Each test also checks that others are still served.
"""

import errno
import os
import re
import shutil
import signal

import pytest

from daemons import NOBODY, NOBODY_ID
from harness import DumpName, target, wait_until
from security import assert_answers, assert_serves, keeping_puppet, start_hostile, start_talking

DAEMON = ["--exact"]
# The maximum of files with probes of one user; see userspace/attach/probe_files.cc.
FILES_OF_USER = 32
# PERF_RECORD_MMAP2 has at least 72 bytes, plus the file's name.
MAPPINGS, MAPPING_EVENT_BYTES = 20000, 72
# The most processor time that a request without a possible answer may cost: a tenth of the smallest profile's.
REQUESTS, REQUEST_SECONDS = 20000, 0.0001


@pytest.fixture
def daemon(lab, daemon):
    """The daemon must still serve after each test."""
    yield daemon
    assert_serves(lab, daemon)


def recorded_hostile(lab, daemon):
    """Starts a recorded hostile target. The collector sees the file of the first one late."""
    hostile = start_hostile(lab)
    wait_until(lambda: hostile.ask("sample 1") and hostile.pid in daemon.listed(), "it is recorded")
    return hostile


@pytest.mark.parametrize("lie", ("garbage", "null", "kernel", "noncanonical"))
def test_lies_about_the_control_block(lab, daemon, lie):
    """A lying process is reported once, however often it lies."""
    recorded_hostile(lab, daemon)
    hostile = start_hostile(lab)
    hostile.ask(f"flood {lie} 3000")
    said = f"process {hostile.pid} has no valid control block"
    daemon.wait_said(said)
    hostile.ask(f"start {lie}")
    assert_answers(daemon)
    hostile.ends()
    daemon.wait_ended(hostile.pid)
    assert daemon.process.stderr().count(said) == 1


def test_control_block_that_is_not_there(lab, daemon):
    """The page of the control block faults for ever: requests for it fail at once, and nothing blocks. If the page went
    before the daemon had written the rate, one line says that."""
    recorded_hostile(lab, daemon)
    hostile = start_hostile(lab)
    assert hostile.ask("start absent") == "started absent"
    hostile.ask("sample 3")
    daemon.wait_listed(hostile.pid)
    for method, page in (("GET", "allocator.json"), ("GET", "mtev/memory.json"), ("POST", "active?value=off")):
        answer = daemon.request(method, f"/pid/{hostile.pid}/{page}")
        assert answer.status == 400
        # The read itself failed. About one that blocks, the answer is that the process does not let heaptap look at it.
        assert f"cannot read memory of process {hostile.pid}: ".encode() in answer.body
    said = [line for line in daemon.process.lines() if f"process {hostile.pid} " in line]
    assert len(said) <= 1
    assert all("cannot be told its rate and its collector: cannot read memory of " in line for line in said)


def test_descriptors_for_a_dump(lab, daemon):
    """The daemon writes only to a regular file that is open for writing."""
    hostile = recorded_hostile(lab, daemon)
    with open(f"/proc/{hostile.pid}/oom_score_adj", encoding="ascii") as file:
        before = file.read()
    expected = dict.fromkeys(("readonly", "pipe", "socket", "proc", "device", "folder", "epoll", "closed"), errno.EBADF)
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


def test_symlinked_prefix(lab, daemon):
    """A process's own dump goes only to files that the process itself may write: a link to root's file fails for a given
    name, and makes an automatic one the next; the next dump succeeds."""
    precious = lab.path("precious")
    with open(precious, "w", encoding="ascii") as file:
        file.write("precious")
    os.chmod(precious, 0o600)
    mine = lab.path("mine")
    os.mkdir(mine)
    os.chown(mine, NOBODY_ID, NOBODY_ID)
    puppet = keeping_puppet(lab, env={"MALLOC_CONF": f"prof:true,lg_prof_sample:0,prof_prefix:{mine}/p"}, cwd=mine,
                            **NOBODY)
    daemon.wait_listed(puppet.pid)
    for name in (f"p.{puppet.pid}.0.m0.heap", "link"):
        os.symlink(precious, os.path.join(mine, name))
    assert puppet.ask("call prof.dump") == "0"
    assert os.path.exists(os.path.join(mine, f"p.{puppet.pid}.1.m1.heap"))
    for name in (f"{mine}/link", precious):
        assert puppet.ask(f"write string prof.dump {name}") == str(errno.EFAULT), name
    assert puppet.ask(f"write string prof.dump {mine}/beside.heap") == "0"
    with open(os.path.join(mine, "beside.heap"), encoding="ascii") as file:
        assert file.read().startswith("heap_v2/")
    with open(precious, encoding="ascii") as file:
        assert file.read() == "precious"
    shutil.rmtree(mine)  # names that no dump has


def test_dumps_of_one_user_at_once(lab, daemon):
    """The daemon makes one dump at a time for each user; the other processes of the user wait, and get theirs."""
    mine = lab.path("mine")
    os.mkdir(mine)
    os.chown(mine, NOBODY_ID, NOBODY_ID)
    puppets = [keeping_puppet(lab, env={"MALLOC_CONF": "prof:true,lg_prof_sample:0"}, cwd=mine, **NOBODY) for _ in range(4)]
    for puppet in puppets:
        daemon.wait_listed(puppet.pid)
    for number, puppet in enumerate(puppets):
        puppet.tell(f"write string prof.dump {mine}/{number}")
    for number, puppet in enumerate(puppets):
        assert puppet.answer() == "0"
        with open(os.path.join(mine, str(number)), encoding="ascii") as file:
            assert file.read().startswith("heap_v2/")
    shutil.rmtree(mine)  # names that no dump has


NAMES = ("/../../x", "..", ".hidden", "a\nheaptap: lie", "ä" * 7, "'$(id)`")


@pytest.mark.parametrize("name", NAMES)
def test_names(lab, daemon, name):
    """A command may hold any byte; the names of its dumps and messages about it are printable."""
    hostile = start_hostile(lab)
    hostile.ask(f"name {name.encode().hex()}")
    wait_until(lambda: hostile.ask("sample 3") and daemon.listed().get(hostile.pid, {}).get("samples"),
               "it has samples")
    assert re.search(r"^[ -~]*$", daemon.listed()[hostile.pid]["command"])
    listed = daemon.client("list")
    assert len(re.findall(rf"^ *{hostile.pid} .*$", listed, re.MULTILINE)) == 1, listed
    assert re.search(r"\A[ -~\n]*\Z", listed), listed
    assert "\nheaptap: lie" not in listed
    hostile.signal(signal.SIGSEGV)
    hostile.ends(-signal.SIGSEGV)
    path = daemon.wait_said(rf"^heaptap: wrote (\S+\.{hostile.pid}\.0\.f\.heap): ").group(1)
    assert os.path.dirname(path) == daemon.state_folder
    assert re.search(r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", os.path.basename(path))
    assert DumpName(path).pid == hostile.pid
    assert os.path.isfile(path)
    assert not re.search(r"(?m)^heaptap: lie", daemon.process.stderr())


def test_probe_files_of_a_user(lab, daemon):
    """Only a limited number of a user's files get probes; the machine's own files are not affected."""
    def copy(number):
        path = lab.path(f"copy{number}")
        shutil.copy(target("hostile"), path)
        os.chmod(path, 0o755)
        return path

    def samples(process):
        process.ask("sample 1")
        return daemon.listed().get(process.pid, {}).get("samples")

    for number in range(FILES_OF_USER):
        path = copy(number)
        os.chown(path, NOBODY_ID, NOBODY_ID)
        process = start_talking(lab, path, **NOBODY)
        wait_until(lambda process=process: samples(process), f"file {number} is attached to")
    path = copy(FILES_OF_USER)
    os.chown(path, NOBODY_ID, NOBODY_ID)
    one_more = start_talking(lab, path, **NOBODY)
    daemon.wait_said(rf"^heaptap: .*{re.escape(path)}.*, {FILES_OF_USER} of them owned by user {NOBODY_ID}")
    roots = start_talking(lab, copy("of root"))
    wait_until(lambda: samples(roots), "root's file is attached to")
    assert samples(one_more) is None


def test_requests_without_end(lab, start_daemon):
    """A flood of requests does not cost a profile each: others are still served."""
    daemon = start_daemon("--exact", losses_allowed=("events_full",))
    floods = [recorded_hostile(lab, daemon) for _ in range(2)]
    daemon.settle()
    before = processor_seconds(daemon.process.pid)
    for hostile in floods:
        hostile.tell(f"requests {REQUESTS}")
    assert_answers(daemon)
    for hostile in floods:
        hostile.answer()
    daemon.settle()
    seconds = processor_seconds(daemon.process.pid) - before
    assert seconds < len(floods) * REQUESTS * REQUEST_SECONDS
    for hostile in floods:
        hostile.ends()
    assert_serves(lab, daemon)


def processor_seconds(pid):
    """Of a process and of its children that were waited for."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rpartition(") ")[2].split()
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def largest_perf_buffer(pid):
    """The size of the largest buffer for mapping events, in bytes."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        ranges = [line.split()[0].split("-") for line in maps if line.rstrip().endswith("anon_inode:[perf_event]")]
    return max(int(end, 16) - int(begin, 16) for begin, end in ranges)


@pytest.mark.whole_machine  # it would hide the mappings of other tests' processes, too
def test_mappings_that_nobody_hears_of(lab, start_daemon):
    """Processes that flood the mapping events hide the mappings of others; the collector reads them itself then."""
    daemon = start_daemon("--exact")
    noise = [start_hostile(lab, preexec_fn=lambda cpu=cpu: os.sched_setaffinity(0, {cpu}))
             for cpu in os.sched_getaffinity(0)]
    daemon.process.signal(signal.SIGSTOP)
    assert MAPPINGS * MAPPING_EVENT_BYTES > largest_perf_buffer(daemon.process.pid), "there is room for all of them"
    for hostile in noise:
        hostile.ask(f"map {MAPPINGS}")
    puppet = keeping_puppet(lab)
    daemon.process.signal(signal.SIGCONT)
    path = lab.path("mapped")

    def names():
        if puppet.pid not in daemon.listed():
            return False
        daemon.dump(puppet.pid, path)
        with open(path, encoding="ascii") as file:
            return os.path.realpath(target("puppet")) in file.read()
    wait_until(names, "the dump says where its code is")
    assert_serves(lab, daemon)
