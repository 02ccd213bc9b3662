# SPDX-License-Identifier: Apache-2.0
"""heaptap run says before the start that nothing can be preloaded into a program, and runs it."""

import os
import re
import subprocess

import pytest

import go_programs
import symbols
from harness import target

SOURCE = "#include <unistd.h>\nint main(int n, char** words) { if (n > 1) execv(words[1], words + 1); return 7; }\n"


def said(session):
    return [line for line in session.lines() if line.startswith("heaptap: nothing can be preloaded into ")]


@pytest.fixture
def static(lab):
    with open(lab.path("main.c"), "w", encoding="ascii") as file:
        file.write(SOURCE)
    subprocess.run(["gcc", "-static", "main.c", "-o", "static"], cwd=lab.folder, check=True)
    return lab.path("static")


def changed(lab, static, offset, value):
    """The program with another byte in its ELF header."""
    path = lab.path("changed")
    with open(static, "rb") as file:
        data = bytearray(file.read())
    data[offset] = value
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, 0o755)
    return path


def test_a_static_program(lab, static):
    session = lab.heaptap("run", "--", static)
    session.records = False
    session.ends(7)
    assert said(session) == [f"heaptap: nothing can be preloaded into {static}, because it is statically linked; only programs "
                             "that it starts may be recorded"]
    # Before the start.
    assert session.lines()[0] == said(session)[0]
    # The reason is known, so there is no question about it.
    assert session.lines()[-1] == f"heaptap: nothing was recorded: no process of {static} had a sampled allocator"


def test_a_go_program(lab):
    program = go_programs.built(lab.folder, "package main\nfunc main() {}\n")
    session = lab.heaptap("run", "--", program)
    session.records = False
    session.ends()
    (line,) = said(session)
    assert "because it is a Go program without C code, which allocates by itself: Go's runtime/pprof profiles it; " in line
    assert "statically linked" not in session.stderr()


def test_what_a_static_program_starts_is_recorded(lab, static):
    session = lab.heaptap("run", "--exact", "--", static, target("wiki_leak"))
    session.ends()
    assert len(said(session)) == 1
    assert symbols.live(lab.only_dump(), "do_something")[0] == 80


@pytest.mark.parametrize("offset, value, why", [(4, 1, "it is a 32-bit program"), (18, 183, "it is for another machine than x86-64")],
                         ids=["class", "machine"])
def test_another_class_or_machine(lab, static, offset, value, why):
    session = lab.heaptap("run", "--", changed(lab, static, offset, value))
    session.records = False
    session.wait()
    (line,) = said(session)
    assert re.search(f"because {why}; ", line)


@pytest.mark.parametrize("command", [["true"], ["sh", "-c", "true"], ["/lib64/ld-linux-x86-64.so.2", "/bin/true"],
                                     [target("pool_static"), "10", "10"]], ids=["dynamic", "shell", "linker", "own samples"])
def test_nothing_is_said_of_others(lab, command):
    session = lab.heaptap("run", "--", *command)
    session.records = False
    session.ends()
    assert said(session) == []
