# SPDX-License-Identifier: Apache-2.0
"""heaptap run says before the start that nothing can be preloaded into a program, and runs it."""

import os
import re
import shutil
import subprocess

import pytest

import go_programs
import symbols
from harness import HEAPTAP, LIBRARY, target
from lab import assert_one_clear_line

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


@pytest.mark.parametrize("offset, value, why", [(4, 1, "it is a 32-bit program"), (18, 183, "it is for a machine other than x86-64")],
                         ids=["class", "machine"])
def test_another_class_or_machine(lab, static, offset, value, why):
    session = lab.heaptap("run", "--", changed(lab, static, offset, value))
    session.records = False
    session.wait()
    (line,) = said(session)
    assert re.search(f"because {why}; ", line)


OWN_MALLOC = ("static char memory[1 << 20];\nstatic unsigned long used;\n"
              "void *malloc(unsigned long size) { used += size + 16 & ~15ul; return memory + used - size; }\n"
              "void free(void *block) { (void)block; }\nint main(void) { return malloc(9) == 0 ? 1 : 7; }\n")
USES_MALLOC = "#include <stdlib.h>\nint main(void) { return malloc(9) == 0 ? 1 : 7; }\n"
LINK_ORDER = "ASAN_OPTIONS=verify_asan_link_order=0"


def built(lab, source, *command):
    with open(lab.path("own.c"), "w", encoding="ascii") as file:
        file.write(source)
    subprocess.run([*command, "-fno-builtin", "own.c", "-o", "own"], cwd=lab.folder, check=True)
    return lab.path("own")


@pytest.mark.parametrize("arguments", [(), ("--guest",)], ids=["own", "guest"])
@pytest.mark.parametrize("source, flags, why", [
    (OWN_MALLOC, (), "a malloc of its own"),
    (USES_MALLOC, ("-Wl,-Bstatic", "-ljemalloc", "-Wl,-Bdynamic", "-lstdc++", "-lm"), "a malloc of its own, that of jemalloc"),
], ids=["own", "jemalloc"])
def test_a_malloc_in_the_program(lab, source, flags, why, arguments):
    with open(lab.path("own.c"), "w", encoding="ascii") as file:
        file.write(source)
    subprocess.run(["gcc", "-w", "-fno-builtin", "own.c", "-o", "own", *flags], cwd=lab.folder, check=True)
    session = lab.heaptap("run", *arguments, "--", lab.path("own"))
    session.records = False
    session.ends(7)
    (line,) = said(session)
    assert f"because it has {why}; only programs that it starts may be recorded" in line
    assert "use --exact" not in session.stderr() and "?" not in session.stderr()


@pytest.mark.parametrize("compiler, name", [
    (("gcc", "-fsanitize=address", "-static-libasan"), "AddressSanitizer"), (("clang", "-fsanitize=address"), "AddressSanitizer"),
    (("gcc", "-fsanitize=leak", "-static-liblsan"), "LeakSanitizer"), (("clang", "-fsanitize=leak"), "LeakSanitizer"),
    (("clang", "-fsanitize=memory"), "MemorySanitizer")], ids=lambda value: "_".join(value) if isinstance(value, tuple) else value)
def test_a_sanitizer_in_the_program(lab, compiler, name):
    session = lab.heaptap("run", "--", built(lab, USES_MALLOC, *compiler), env={"ASAN_OPTIONS": "detect_leaks=0"})
    session.records = False
    session.wait()
    assert session.popen.returncode in (7, 23), "as without heaptap: a leak is status 23"
    (line,) = said(session)
    assert f"because it has {name}, and with it a malloc of its own; " in line
    assert "use --exact" not in session.stderr()


@pytest.mark.parametrize("compiler, library", [(("gcc", "-static-libtsan"), ""), (("clang",), ""), (("gcc",), r" \(libtsan\.so\.\d+\)")],
                         ids=["gcc static", "clang", "gcc"])
@pytest.mark.parametrize("arguments", [(), ("--guest",)], ids=["own", "guest"])
def test_thread_sanitizer_is_refused(lab, compiler, library, arguments):
    """It would end the program before main."""
    program = built(lab, USES_MALLOC, *compiler, "-fsanitize=thread")
    session = lab.heaptap("run", *arguments, "--", program)
    assert_one_clear_line(session, 1, f"{program} has ThreadSanitizer{library}, with which no library of heaptap can run: build")


def shared_asan(lab, compiler):
    flags = ["-fsanitize=address"]
    if compiler == "clang":
        runtime = subprocess.run(["clang", "-print-file-name=libclang_rt.asan-x86_64.so"], stdout=subprocess.PIPE, text=True,
                                 check=True).stdout.strip()
        flags += ["-shared-libasan", f"-Wl,-rpath,{os.path.dirname(runtime)}"]
    return built(lab, USES_MALLOC, compiler, *flags)


@pytest.mark.parametrize("compiler, library", [("gcc", r"libasan\.so\.\d+"), ("clang", r"libclang_rt\.asan-x86_64\.so")])
@pytest.mark.parametrize("arguments, remedy", [((), f"set {LINK_ORDER} and add --guest"), (("--guest",), f"set {LINK_ORDER},")],
                         ids=["own", "guest"])
def test_a_shared_address_sanitizer_is_refused(lab, compiler, library, arguments, remedy):
    """It would end the program with a message of its own."""
    program = shared_asan(lab, compiler)
    session = lab.heaptap("run", *arguments, "--", program)
    assert_one_clear_line(session, 1, rf"{program} has AddressSanitizer \({library}\), which refuses to start behind another "
                          rf"library: {remedy}")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_remedy_for_address_sanitizer(lab, compiler):
    name, value = LINK_ORDER.split("=", 1)
    session = lab.heaptap("run", "--guest", "--exact", "--", shared_asan(lab, compiler), env={name: f"{value}:detect_leaks=0"})
    session.ends(7)
    assert said(session) == []
    assert lab.only_dump().total.objects >= 1


@pytest.mark.parametrize("token", ["$ORIGIN", "${LIB}x", "x$PLATFORM"])
def test_a_folder_with_a_token_of_the_dynamic_linker(lab, token):
    folder = lab.path(token)
    os.mkdir(folder)
    for path in (HEAPTAP, LIBRARY):
        shutil.copy(path, folder)
    process = lab.program(os.path.join(folder, "heaptap"), "run", "--", "true")
    process.ends(1)
    (line,) = process.stderr().splitlines()
    assert line.startswith(f"heaptap: LD_PRELOAD cannot contain the path '{folder}/libheaptap.so': ")


@pytest.mark.parametrize("command", [["true"], ["sh", "-c", "true"], ["/lib64/ld-linux-x86-64.so.2", "/bin/true"],
                                     [target("pool_static"), "10", "10"]], ids=["dynamic", "shell", "linker", "own samples"])
def test_nothing_is_said_of_others(lab, command):
    session = lab.heaptap("run", "--", *command)
    session.records = False
    session.ends()
    assert said(session) == []
