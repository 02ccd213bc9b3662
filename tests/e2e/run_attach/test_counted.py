# SPDX-License-Identifier: Apache-2.0
"""--exact: the program counts allocations at known call paths itself, and every total stays right.

With verify_counts the library compares each stack that it takes as known with the kernel's, and aborts where they
differ. Error bound: none.
"""

import os
import re
import signal
import sys

import pytest

import symbols
from areas import REPORTED_FIRST, REPORTED_OF, areas, counted
from harness import LIBRARY, PATIENCE_SECONDS, target, wait_until
from heap_v2 import Dump
from lab import READY_BLOCKS, assert_one_clear_line
from one_liners import end, listens
from process_tree import descendants, runs
from symbols import kept, live

PROFILED = {"MALLOC_CONF": "prof:true,prof_final:false"}


def run(lab, *command, verify=False, **options):
    env = dict(options.pop("env", {}))
    if verify:
        env["HEAPTAP_CONF"] = "verify_counts:true"
    return lab.heaptap("run", "--exact", "--", *command, env=env, **options)


def known(session):
    """How many samples of each process had the stacks that were known."""
    return [int(count) for count in re.findall(r"^<heaptap>: (\d+) samples had the stacks", session.stderr(), re.M)]


# --- what programs do --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("command, most_reported", (
    ((target("depth"), "16", "20000"), 1100),
    ((target("exact_threads"), "20000"), None),  # the others report while one of them waits for the area
    ((target("odd_stacks"), "500"), 40000),
    (("jq", "-n", "[range(5000) | {a: ., b: tostring}] | length"), 8000),
    ((sys.executable, "-c", "import json, re, collections; print(len(json.dumps([{'a': i} for i in range(3000)])))"), 40000),
    ((target("jit"), "frame", "3000"), None),
    ((target("jit"), "own", "3000"), None),
    ((target("jit"), "mine", "3000"), None),
    ((target("frames"),), None),
    ((target("callers"),), None)), ids=lambda value: os.path.basename(value[0]) if isinstance(value, tuple) else "")
def test_each_known_stack_is_the_kernel_s(lab, command, most_reported):
    session = run(lab, *command, verify=True, env={"PYTHONMALLOC": "malloc"})
    session.ends(seconds=4 * PATIENCE_SECONDS)
    (entry,) = session.books()
    (compared,) = known(session)
    if most_reported is not None:
        assert entry["samples_allocated"] - compared <= most_reported


def test_threads_count(lab):
    """The totals are those of the program, although most samples were never reported."""
    session = run(lab, target("exact_threads"), "-", talks=True)
    pid = wait_until(lambda: next((pid for pid in descendants(session.pid) if runs(pid, "exact_threads")), None),
                     "the program runs")
    wait_until(lambda: counted(pid) >= 200000, "its threads have counted")
    assert len(areas(pid)) == 1
    session.tell("stop")
    truth = [session.answer().split() for _ in range(3)]
    session.ends(seconds=4 * PATIENCE_SECONDS)
    dump = lab.only_dump()
    for path, objects, size, _ in truth:
        assert live(dump, path) == (int(objects), int(size)), path
    (entry,) = session.books()
    assert entry["samples_allocated"] == sum(int(ever) for *_, ever in truth) + 8


def test_threads_that_free_each_other_s_objects(lab):
    session = run(lab, target("exact_threads"), "20000")
    session.ends(seconds=4 * PATIENCE_SECONDS)
    dump = lab.only_dump()
    for path, objects, size, _ in re.findall(r"^(\w+) (\d+) (\d+) (\d+)$", session.stdout(), re.MULTILINE):
        assert symbols.live(dump, path) == (int(objects), int(size)), path
    (entry,) = session.books()
    assert entry["samples_allocated"] == 8 * 20000 + 8


def test_odd_stacks(lab):
    """Signal handlers, coroutines, jumps."""
    session = run(lab, target("odd_stacks"), "500")
    session.ends()
    assert live(lab.only_dump(), "keep_odd")[0] == int(session.stdout())


# --- the life of a process ---------------------------------------------------------------------------------------------

def test_a_program_that_is_killed(lab):
    """What it has counted outlives it."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("churn 20000 100")
    session.ask("keep 30000 100")
    assert counted(session.target_pid) >= (50000 - REPORTED_FIRST) * (1 - 1 / REPORTED_OF) - 10
    os.kill(session.target_pid, signal.SIGKILL)
    session.ends(128 + signal.SIGKILL)
    assert kept(lab.only_dump(session.target_pid, "f")) == 30000
    (entry,) = session.books()
    assert entry["samples_allocated"] >= 50000


def test_a_collector_that_is_late(lab):
    """The process soon asks again."""
    session = lab.puppet_under_heaptap("--exact")
    session.signal(signal.SIGSTOP)
    session.ask("keep 2000 100")
    assert areas(session.target_pid) == []
    session.signal(signal.SIGCONT)

    def has_area():
        session.ask("keep 1 100")
        return areas(session.target_pid)
    wait_until(has_area, "the collector has given an area")
    session.ends()


def test_short_programs_need_no_area(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 100 100")
    assert areas(session.target_pid) == []
    session.ask("keep 5000 100")
    assert len(areas(session.target_pid)) == 1
    session.ends()
    assert kept(lab.only_dump(session.target_pid, "f")) == 5100


@pytest.mark.parametrize("command", ("drop", "exit 0", "keep 3000 50; drop"))
def test_a_forked_child_counts_for_itself(lab, command):
    """The child has no area of its parent, and its frees of its parent's blocks do not count."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 10000 100")
    session.ask(f"fork keep 20000 100;{command}" if command != "drop" else "fork drop;keep 20000 100")
    session.ask("keep 10 100")
    session.ends()
    finals = {dump.pid: kept(dump.read()) for dump in lab.dumps(kind="f")}
    assert finals.pop(session.target_pid) == 10010
    assert list(finals.values()) == [0 if command.endswith("; drop") else 20000]


def test_a_forked_child_has_no_area(lab):
    """Not even where no code of the library runs in the child."""
    program = ("import os\nkept = [str(i) for i in range(20000)]\n"
               "if os.fork() == 0: print(os.getpid(), flush=True); input()\nelse: os.wait()")
    session = lab.heaptap("run", "--exact", "--", sys.executable, "-c", program, talks=True,
                          env={"PYTHONMALLOC": "malloc"})
    child = int(session.answer())
    with open(f"/proc/{child}/stat", encoding="ascii") as stat:
        parent = int(stat.read().rpartition(")")[2].split()[1])
    assert len(areas(parent)) == 1
    assert areas(child) == []
    session.tell("")
    session.ends()


def test_an_exec(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("keep 10000 64")
    session.tell(f"exec {target('wiki_leak')}")
    session.ends()
    dump = lab.only_dump(pid=session.target_pid, kind="f")
    assert (dump.total.objects, dump.total.bytes) == (120, 6926352)


@pytest.mark.parametrize("way", ("fork", "vfork", "spawn", "threads"))
def test_children(lab, way):
    session = run(lab, target("children"), way)
    session.ends(7)
    found = sorted((live(dump.read(), "parent_leak"), live(dump.read(), "child_leak")) for dump in lab.dumps(kind="f"))
    assert found == [((0, 0), (500, 500 * 128)), ((1010, 1010 * 64), (0, 0))]


def test_a_signal_handler(lab):
    session = lab.puppet_under_heaptap("--exact")
    session.ask("churn 5000 100")
    session.ask("interrupt 20 100")
    session.ask("handle keep 2000 100")
    session.ends()
    assert kept(lab.only_dump(session.target_pid, "f")) == 2000


def test_a_dump_in_between(lab):
    session = lab.puppet_under_heaptap("--exact", env=PROFILED)
    session.ask("keep 10000 100")
    assert session.ask(f"write string prof.dump {lab.path('own')}") == "0"
    session.ask("drop")
    session.ends()
    assert kept(Dump(lab.path("own"))) == 10000
    assert kept(lab.only_dump(session.target_pid, "f")) == 0


def test_without_descriptors(lab):
    """The program can open nothing, so it gets no area, and reports all samples."""
    session = lab.heaptap("run", "--exact", "--", "prlimit", "--nofile=4:4", target("puppet"), talks=True)
    pid = int(session.answer().split()[1])
    session.ask("keep 5000 100")
    assert areas(pid) == []
    session.ends()
    assert kept(lab.only_dump(pid, "f")) == 5000


def test_a_reset(lab):
    """The counts end with the books; the program gets another area for the new ones."""
    session = lab.puppet_under_heaptap("--exact", env=PROFILED)
    session.ask("keep 10000 100")
    assert session.ask("call prof.reset") == "0"
    session.ask("keep 20000 100")
    assert len(areas(session.target_pid)) == 2
    session.ends()
    assert kept(lab.only_dump(session.target_pid, "f")) == 20000


def test_records_need_each_sample(lab):
    """While the program wants records, it reports each sample."""
    session = lab.puppet_under_heaptap("--exact", env=PROFILED)
    session.ask("keep 10000 100")
    before = counted(session.target_pid)
    assert before > 8000
    assert session.ask("write ssize experimental.prof_recent.alloc_max 100") == "0"
    session.ask("keep 5000 100")
    assert counted(session.target_pid) <= before + 10
    assert session.ask("write ssize experimental.prof_recent.alloc_max 0") == "0"
    session.ask("keep 5000 100")
    assert counted(session.target_pid) > before + 4000
    session.ends()
    assert kept(lab.only_dump(session.target_pid, "f")) == 20000


def test_attach_twice(lab):
    puppet = lab.preloaded_puppet()
    for number in (1, 2):
        session = lab.attach(puppet.target_pid, "--exact", "-o", f"session{number}")
        puppet.ask("churn 3000 100")
        puppet.ask("keep 30000 100")
        assert len(areas(puppet.target_pid)) == number
        before = counted(puppet.target_pid)
        puppet.ask("churn 5000 100")
        assert counted(puppet.target_pid) >= before + 4980
        session.signal(signal.SIGTERM)
        session.ends()
        before = counted(puppet.target_pid)
        puppet.ask("churn 5000 100")
        assert counted(puppet.target_pid) == before, "no collector records the process"
        assert 30000 - READY_BLOCKS <= kept(lab.dumps()[-1].read()) <= 30000
    puppet.ends()


def test_many_threads(lab):
    """More threads at once than mailboxes: those beyond the 63rd report all samples."""
    program = ("import threading\nbarrier = threading.Barrier(80)\n"
               "def work():\n  for _ in range(3): kept = [str(i) for i in range(500)]; barrier.wait()\n"
               "threads = [threading.Thread(target=work) for _ in range(80)]\n"
               "for thread in threads: thread.start()\nfor thread in threads: thread.join()")
    session = run(lab, sys.executable, "-c", program, verify=True, env={"PYTHONMALLOC": "malloc"})
    session.ends(seconds=4 * PATIENCE_SECONDS)
    (compared,) = known(session)
    (entry,) = session.books()
    own = 80 * 3 * 500
    assert own / 2 < compared < entry["samples_allocated"]
    assert entry["samples_allocated"] > own


# --- hostile programs, wrong words -------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", ("ones", "random", "moved"))
def test_a_program_that_forges_its_counts(lab, kind):
    """It lies about itself, at most: the recording goes on, and later blocks are there."""
    session = run(lab, target("forged_counts"), kind)
    session.wait(PATIENCE_SECONDS)
    session.records = False
    assert session.stdout() == "1\n"
    assert session.popen.returncode == 0, session.stderr()
    assert live(lab.only_dump(), "keep_after")[0] == 1000


@pytest.mark.without_bpf
@pytest.mark.parametrize("arguments, reason", (
    (["--report-each"], "only with --exact"),
    (["--report-each", "--lg-sample", "19"], "only with --exact"),
    (["--counted"], "--counted")))
def test_wrong_words(lab, arguments, reason):
    session = lab.heaptap("run", *arguments, "--", "true")
    assert_one_clear_line(session, 2, reason)


@pytest.mark.parametrize("arguments", (["--report-each"], ["--high-water"], ["--interval", "1G"]), ids=lambda value: value[0][2:])
def test_recordings_that_need_each_allocation(lab, arguments):
    session = lab.puppet_under_heaptap("--exact", *arguments)
    session.ask("keep 5000 100")
    assert areas(session.target_pid) == []
    session.ends()
    assert kept(lab.only_dump(session.target_pid, "f")) == 5000


def test_a_listener_that_comes_later(lab):
    """After one sample in REPORTED_OF the thread knows of it, and reports each one, also at stacks that were known."""
    session = lab.puppet_under_heaptap("--exact")
    session.ask("churn 5000 100")
    assert counted(session.target_pid) > 3000
    words = ["bpftrace", "-p", session.target_pid, "-e", f"usdt:{LIBRARY}:otel_memory:alloc {{ @samples++; }}"]
    listener = lab.program(*words)
    wait_until(lambda: listens(listener), "bpftrace listens")
    session.ask(f"churn {2 * REPORTED_OF} 100")
    before = counted(session.target_pid)
    session.ask("churn 5000 100")
    assert counted(session.target_pid) == before
    (samples,) = re.findall(r"^@samples: (\d+)$", end(listener), re.M)
    assert int(samples) >= 5000
    session.ask("churn 5000 100")
    assert counted(session.target_pid) >= before + 4980
    session.ends()


def test_the_library_alone(lab):
    """Without a collector the setting changes nothing."""
    puppet = lab.preloaded_puppet(env={"HEAPTAP_CONF": "areas:true"})
    puppet.ask("churn 3000 100")
    assert areas(puppet.target_pid) == []
    puppet.ends()
