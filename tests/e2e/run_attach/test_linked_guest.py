# SPDX-License-Identifier: Apache-2.0
"""Programs linked with libheaptap-guest.a and --wrap (tests/targets/heaps): static over glibc's malloc, and over a malloc
of their own, which dies of a block that it has not made.

Error bounds: none with --exact; else five standard errors of a number of samples, and seeds are fixed.
"""

import re
import signal

import pytest

import symbols
from harness import target, wait_until
from heap_v2 import Dump
from symbols import live

DAEMON = ["--exact", "--budget", "0"]
# The daemon does not know the programs.
LOSSES_ALLOWED = ("beginning",)

# (program, whether it is static)
C_PROGRAMS = (("doors_static", True), ("doors_own", False), ("doors_own_static", True))
# (program, the usable size of its blocks of 100 bytes)
CXX_PROGRAMS = (("doors_cxx_static", 104), ("doors_cxx_own", 240))


@pytest.mark.parametrize("program", [name for name, _ in C_PROGRAMS] + [name for name, _ in CXX_PROGRAMS])
def test_unrecorded(lab, program):
    """The program does what it does without the guest."""
    process = lab.program(target(program), "10")
    process.ends()
    assert process.stderr() == ""


@pytest.mark.parametrize("program, is_static", C_PROGRAMS)
def test_doors_of_libc(lab, program, is_static):
    """Every allocation is a sample. Blocks go through getline, strdup, asprintf, scandir, open_memstream, setvbuf ..."""
    session = lab.heaptap("run", "--exact", "--", target(program), "1000")
    session.ends()
    dump = lab.only_dump(kind="f")
    assert live(dump, "doors_keep") == (1000, int(session.stdout()))
    # In a static program libc's own calls are wrapped too, so all is balanced: what it keeps are a few buffers. In a
    # dynamic one, libc makes blocks unseen.
    assert 1000 <= dump.total.objects < 1010
    if is_static:
        assert live(dump, "texts") == (0, 0)
        assert not dump.warnings, dump.warnings


@pytest.mark.parametrize("program, usable", CXX_PROGRAMS)
def test_doors_of_the_cxx_library(lab, program, usable):
    session = lab.heaptap("run", "--exact", "--", target(program), "1000")
    session.ends()
    dump = lab.only_dump(kind="f")
    assert live(dump, "doors_keep") == (1000, 1000 * usable)
    assert 1000 <= dump.total.objects < 1010
    # Where the sample begins: not in the guest.
    assert all("Sample" not in (name or "") for stack in dump.stacks for name in symbols.names(dump, stack))


def start_puppet(lab):
    process = lab.program(target("puppet_guest"), talks=True, env={"HEAPTAP_CONF": "prof_seed:7"})
    process.target_pid = int(process.answer().split()[1])
    return process


def test_attach(lab):
    """The control block is found in the program's own file, and takes the rate."""
    puppet = start_puppet(lab)
    puppet.ask("keep 100 1000")
    session = lab.attach(puppet.target_pid, "--exact")
    puppet.ask("churn 1000 1000")  # notices the new rate
    puppet.ask("keep 500 1000")
    session.signal(signal.SIGINT)
    session.ends()
    # 1000 bytes are what a chunk of glibc has.
    assert live(lab.only_dump(puppet.target_pid, "f"), "keep_blocks") == (500, 500 * 1000)
    # Detached: nothing more is recorded, and the program goes on.
    puppet.ask("churn 1000 1000")
    puppet.ask("drop")
    puppet.ends()


def test_rate(lab):
    """At 2^12, 20000 blocks of 104 bytes give 500 samples."""
    session = lab.heaptap("run", "--lg-sample", "12", "--", target("doors_static"), "20000",
                          env={"HEAPTAP_CONF": "prof_seed:7"})
    session.ends()
    dump = lab.only_dump(kind="f")
    estimate = dump.estimate([stack for stack in dump.stacks if "doors_keep" in symbols.names(dump, stack)])
    truth = int(session.stdout())
    assert estimate.bytes == pytest.approx(truth, abs=5 * (4096 * truth) ** 0.5)
    assert dump.total.objects < 2000


def test_daemon(lab, daemon):
    """Entered at its first sample, and listed as a guest with the rate of the daemon."""
    puppet = start_puppet(lab)
    puppet.ask("churn 1000 1000")  # the daemon reads the file meanwhile, and attaches
    def is_recorded():
        puppet.ask("churn 100 1000")
        return daemon.processes().get(puppet.target_pid)
    wait_until(is_recorded, "the puppet is recorded")
    wait_until(lambda: daemon.processes()[puppet.target_pid]["lg_sample"] == 0, "the rate is known")
    puppet.ask("churn 1000 1000")  # notices the rate
    puppet.ask("keep 50 1000")
    path = lab.path("puppet.1.0.m0.heap")
    daemon.dump(puppet.target_pid, path)
    assert live(Dump(path), "keep_blocks") == (50, 50 * 1000)
    puppet.ends()


def test_children(lab):
    """A forked child is recorded with books of its own."""
    session = lab.heaptap("run", "--exact", "--", target("puppet_guest"), talks=True)
    session.target_pid = int(session.answer().split()[1])
    session.ask("keep 10 1000")
    child = int(session.ask("fork keep 7 1000").split()[0])
    session.ends()
    assert live(lab.only_dump(session.target_pid, "f"), "keep_blocks")[0] == 10
    assert live(lab.only_dump(child, "f"), "keep_blocks")[0] == 7


def test_host(lab):
    """The control block says whose guest it is."""
    with open(target("doors_static"), "rb") as file:
        assert re.search(rb"linked malloc\0", file.read())
