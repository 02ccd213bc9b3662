# SPDX-License-Identifier: Apache-2.0
"""libheaptap-guest.so: heaptap run --guest and heaptap attach record programs that keep their own allocator.

Recorded exactly, over glibc, jemalloc, tcmalloc and mimalloc. Error bound: none, except for what a thread allocates
before it notices that somebody attaches (guests.UNNOTICED_BLOCKS).
"""

import json
import os
import re
import shutil
import signal

import pytest

import control
import symbols
from guests import HOSTS, UNNOTICED_BLOCKS, below, puppet
from harness import GUEST, HEAPTAP, LIBRARY, target, wait_until
from lab import assert_one_clear_line
from symbols import kept, names, stacks_through

EVERY_HOST = pytest.mark.parametrize("host", HOSTS)


def run_guest(lab, host, *arguments, conf=None, **options):
    return lab.heaptap("run", "--guest", *arguments, env=dict(below(host), MALLOC_CONF=conf), **options)


def puppet_under_heaptap(lab, host, *arguments, **options):
    session = run_guest(lab, host, *arguments, "--", target("puppet"), talks=True, **options)
    session.target_pid = int(session.answer().split()[1])
    return session


@EVERY_HOST
def test_exact(lab, host):
    """Objects, and bytes in the sizes of the host, on each call path, of threads that free each other's blocks."""
    session = run_guest(lab, host, "--exact", "--", target("exact_threads"), "5000")
    session.ends()
    dump = lab.only_dump()
    assert dump.rate == 1
    printed = re.findall(r"^(\w+) (\d+) (\d+) (\d+)$", session.stdout(), re.MULTILINE)
    assert len(printed) == 3
    for path, objects, size, _ in printed:
        assert symbols.live(dump, path) == (int(objects), int(size)), path
    (entry,) = session.books()
    assert entry["samples_allocated"] >= 8 * 5000


@EVERY_HOST
def test_call_paths(lab, host):
    """From the first allocation on; no frame of the library is left, and none of the program is missing."""
    session = puppet_under_heaptap(lab, host, "--exact")
    session.ask("keep 3 100")
    session.ask("deep 4 100")
    session.ends()
    dump = lab.only_dump()
    paths = {tuple(names(dump, stack)): stack.total.objects for stack in stacks_through(dump, "keep_blocks")}
    depths = {path.count("keep_deep"): objects for path, objects in paths.items()}
    assert depths == {0: 3, 1: 1, 2: 1, 3: 1, 4: 1}
    assert all(path[0] == "keep_blocks" and "main" in path for path in paths)
    for stack in dump.stacks:
        files = [mapping.path for mapping in map(dump.mapping, stack.frames) if mapping]
        assert GUEST not in files, names(dump, stack)


@EVERY_HOST
def test_small_programs_from_the_first_allocation(lab, host):
    """A program that ends before a thread would look a second time whether it is recorded."""
    run_guest(lab, host, "--exact", "--", target("wiki_leak")).ends()
    dump = lab.only_dump()
    assert symbols.live(dump, "do_something")[0] == 80
    assert symbols.live(dump, "do_something_else")[0] == 40


@EVERY_HOST
def test_attach_and_detach(lab, host):
    """A running process is recorded, left as it was, and recorded again."""
    process = puppet(lab, host)
    pid = process.target_pid
    before = control.control(pid, GUEST)
    for number in range(2):
        process.ask("keep 1000 100")
        session = lab.attach(pid, "--exact", "-o", f"session{number}")
        assert control.control(pid, GUEST).collector_lg_sample == 0
        process.ask("keep 20000 100")
        process.ask("churn 20000 100")
        session.signal(signal.SIGINT)
        session.ends()
        assert 20000 - UNNOTICED_BLOCKS <= kept(lab.dumps()[-1].read()) <= 20000
        assert control.control(pid, GUEST) == before
        assert set(control.semaphores(pid, GUEST).values()) == {0}
    # The blocks of both times, most of which were samples.
    assert process.ask("drop") == "dropped 42000"
    process.ends()


def test_samples(lab):
    """At a rate: of 200 MB in blocks of 1000 bytes, estimates are right within five standard errors."""
    session = puppet_under_heaptap(lab, "jemalloc", "--lg-sample", "16")
    session.ask("keep 200000 1000")
    session.ends()
    dump = lab.only_dump()
    # 1000 bytes take 1024 there. 3125 samples are expected.
    bytes_kept = dump.estimate(stacks_through(dump, "keep_blocks")).bytes
    assert bytes_kept == pytest.approx(200000 * 1024, rel=5 / 3125**0.5)


def test_dumps_by_signal_and_at_triggers(lab):
    session = puppet_under_heaptap(lab, "jemalloc", "--exact", "--interval", "1M", "--high-water")
    session.ask("keep 2000 1000")
    session.wait_said(r"\.i\d+\.heap")
    session.wait_said(r"\.u\d+\.heap")
    session.signal(signal.SIGUSR1)
    session.wait_said(r"\.m\d+\.heap")
    assert kept([dump for dump in lab.dumps() if dump.kind == "m"][0].read()) == 2000
    session.ends()
    assert kept(lab.dumps(kind="f")[0].read()) == 2000


def test_dumps_of_malloc_conf(lab):
    """The process asks for its dumps at intervals and at exit, and chooses the rate."""
    conf = "prof:true,prof_final:true,prof_prefix:own,lg_prof_sample:0,lg_prof_interval:20"
    session = puppet_under_heaptap(lab, "glibc", conf=conf)
    session.ask("keep 3000 1000")
    session.ends()
    own = [dump for dump in lab.dumps() if dump.prefix == "own"]
    assert {"i", "f"} <= {dump.kind for dump in own}
    (final,) = [dump for dump in own if dump.kind == "f"]
    assert kept(final.read()) == 3000
    assert final.read().rate == 1


def test_children(lab):
    """Each process image has its own books."""
    parent, child = (1010, 1010 * 72), (500, 500 * 136)  # glibc's sizes
    run_guest(lab, "glibc", "--exact", "--", target("children"), "exec").ends(7)
    found = [(symbols.live(dump.read(), "parent_leak"), symbols.live(dump.read(), "child_leak"))
             for dump in lab.dumps(kind="f")]
    assert (parent, (0, 0)) in found
    assert ((0, 0), child) in found


def test_kill_9(lab):
    """The profile of a killed process."""
    session = puppet_under_heaptap(lab, "jemalloc", "--exact")
    session.ask("keep 500 1000")
    os.kill(session.target_pid, signal.SIGKILL)
    session.ends(128 + signal.SIGKILL)
    assert kept(lab.only_dump(session.target_pid, "f")) == 500


# --- bad input ---


@pytest.mark.without_bpf
def test_both_libraries(lab):
    for preloaded, option, words in ((LIBRARY, ["--guest"], "takes samples itself"), (GUEST, [], "add --guest")):
        session = lab.heaptap("run", *option, "--", "true", env={"LD_PRELOAD": preloaded})
        session.records = False
        session.ends(2)
        # heaptap itself runs with what is preloaded.
        (line,) = [line for line in session.lines() if line.startswith("heaptap: ")]
        assert re.search(f"^heaptap: LD_PRELOAD has {re.escape(preloaded)}, .*{words}", line)


def test_another_copy_of_the_guest(lab):
    copy = shutil.copy(GUEST, lab.path("libheaptap-guest.so"))
    session = lab.heaptap("run", "--guest", "--", "true", env={"LD_PRELOAD": copy})
    assert_one_clear_line(session, 2, f"LD_PRELOAD has {re.escape(copy)}, another copy")


def test_the_guest_behind_the_host(lab):
    """run --guest puts it in front. Attaching to a process that was started so says what is wrong."""
    wrong = {"LD_PRELOAD": f"{HOSTS['jemalloc']} {GUEST}"}
    session = lab.heaptap("run", "--guest", "--exact", "--", target("wiki_leak"), env=wrong)
    session.ends()
    assert symbols.live(lab.only_dump(), "do_something")[0] == 80
    process = lab.program("sleep", "1000", env=wrong)
    process.wait_said("only a library before the allocator can be a guest")
    session = lab.heaptap("attach", "-p", process.pid)
    session.records = False
    session.ends(3)
    assert re.fullmatch(rf"heaptap: process {process.pid} has no valid control block: .* takes no samples .*",
                        session.lines()[-1])


def test_both_libraries_in_a_process(lab):
    """The process's own line says which one takes the samples; that one is recorded."""
    process = lab.program(target("puppet"), talks=True, env={"LD_PRELOAD": f"{GUEST} {LIBRARY}"})
    pid = int(process.answer().split()[1])
    process.wait_said("libheaptap-guest.so takes no samples: .* is loaded too")
    session = lab.attach(pid, "--exact")
    process.ask("keep 20000 100")
    session.signal(signal.SIGINT)
    session.ends()
    assert 19000 < kept(lab.only_dump(pid, "f")) <= 20000


def test_without_the_library(lab):
    """An incomplete installation."""
    heaptap = shutil.copy(HEAPTAP, lab.path("heaptap"))
    session = lab.heaptap("run", "--guest", "--", "true", binary=heaptap)
    assert_one_clear_line(session, 1, "cannot find libheaptap-guest.so, neither at .* nor at ")


def test_a_program_with_its_own_malloc(lab):
    """The program runs; both the library and heaptap say why nothing is recorded."""
    session = run_guest(lab, "glibc", "--", target("jemalloc_example_static"))
    session.records = False
    session.ends()
    assert re.search("^<heaptap>: libheaptap-guest.so takes no samples: malloc is that of .*jemalloc_example_static; ",
                     session.stderr(), re.MULTILINE)
    assert re.search("^heaptap: nothing was recorded: ", session.stderr(), re.MULTILINE)


def test_list_without_a_daemon(lab):
    """What each process says of itself; figures that only the full library has are left out."""
    guest, full = puppet(lab, "jemalloc"), lab.preloaded_puppet()
    assert full.ask("keep 1 100") == "kept 1"
    session = lab.heaptap("list", "--json")
    session.records = False
    session.ends()
    listed = {entry["pid"]: entry for entry in json.loads(session.stdout())["processes"]}
    assert listed[guest.target_pid]["allocator"] == "guest over jemalloc 5.3.0"
    assert "mapped" not in listed[guest.target_pid]
    assert listed[full.target_pid]["allocator"] == "heaptap"
    assert listed[full.target_pid]["mapped"] > 0


def test_a_hostile_name(lab):
    """The process writes what it likes where the name of its host is."""
    process = puppet(lab, "glibc")
    address = control.address(process.target_pid, GUEST) + control.HOST_OFFSET
    with open(f"/proc/{process.target_pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(b"\x1b[2J\n\xff" + b"x" * 42)
    session = lab.heaptap("stats", process.target_pid, "--socket", lab.path("none"))
    session.records = False
    wait_until(lambda: not session.alive(), "stats ends")
    assert f"guest over ?[2J??{'x' * 42}\n" in session.stdout()
