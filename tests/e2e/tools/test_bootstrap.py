# SPDX-License-Identifier: Apache-2.0
"""scripts/bootstrap: the packages of a purpose, and its messages. Nothing is installed: PATH has another dpkg-query, and
the tests only use --check."""

import os
import re
import subprocess

import pytest

from harness import PATIENCE_SECONDS, ROOT

pytestmark = pytest.mark.without_bpf

BOOTSTRAP = os.path.join(ROOT, "scripts/bootstrap")
PREFIX = "scripts/bootstrap: missing packages: "


@pytest.fixture
def bootstrap(folder):
    """Runs scripts/bootstrap on a machine with the packages `knows`."""
    def run(*arguments, knows=""):
        path = os.path.join(folder, "dpkg-query")
        with open(path, "w", encoding="utf-8") as script:
            script.write("#!/bin/sh\n" + "".join(f"echo installed {name}\n" for name in knows.split()) + "exit 1\n")
        os.chmod(path, 0o755)
        environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
        return subprocess.run([BOOTSTRAP, *arguments], env=environment, capture_output=True, text=True, check=False,
                              timeout=PATIENCE_SECONDS)
    return run


@pytest.fixture
def missing(bootstrap):
    """The packages that --check names."""
    def names_of(*purposes, knows=""):
        result = bootstrap("--check", *purposes, knows=knows)
        assert (result.returncode, result.stdout) == (1, ""), result.stderr
        assert result.stderr.startswith(PREFIX)
        assert result.stderr.count("\n") == 1
        names = result.stderr[len(PREFIX):].split()
        assert len(names) == len(set(names)), "a package is named twice"
        return set(names)
    return names_of


def test_purposes_include_what_they_need(missing):
    build, demo, test = missing("build"), missing("demo"), missing("test")
    programs, lint, kernels = missing("programs"), missing("lint"), missing("kernels")
    assert {"g++", "clang", "libbpf-dev"} <= build
    assert "bpftool" in {name.split("|")[0] for name in build}
    assert build < demo < test < kernels
    assert test < programs
    assert build < lint
    compilers = missing("compilers")
    assert build < compilers
    assert {"clang-19", "g++-12"} <= compilers
    assert {"python3-pytest", "python3-pytest-xdist", "python3-pytest-timeout"} <= test
    assert missing() == programs | lint | kernels
    assert missing("lint", "demo") == lint | demo


def test_the_demo_takes_little(missing):
    """No machine emulator, no database, no other language, no kernel headers, no LLVM but the compiler."""
    unwanted = re.compile("qemu|postgres|golang|linux-headers|^llvm|^python|clang-|valgrind")
    assert [name for name in missing("demo") if unwanted.search(name)] == []


def test_what_is_there_is_not_named(bootstrap, missing):
    # Of alternatives, the first.
    all_of_it = {name.split("|")[0] for name in missing("demo")}
    assert missing("demo", knows=" ".join(all_of_it - {"clang"})) == {"clang"}
    for arguments in (["demo"], ["--check", "demo"], ["demo", "--check", "build"]):
        result = bootstrap(*arguments, knows=" ".join(all_of_it))
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), arguments


def test_programs_have_their_packages(missing):
    """Those of tests/programs, but for two that each Debian has."""
    known = {name for names in missing("programs") for name in names.split("|")} | {"bash", "coreutils"}
    listed = subprocess.run([os.path.join(ROOT, "tests/programs/run"), "--list"], stdout=subprocess.PIPE, text=True,
                            check=True, timeout=PATIENCE_SECONDS).stdout.splitlines()
    packages = [re.split(" {2,}", line)[1].split()[0] for line in listed if " has no " not in line]
    assert len(packages) > 50
    assert [names for names in packages if not known & set(names.split("|"))] == []


@pytest.mark.parametrize("arguments", (["tests"], ["demo", "--chek"], [""], ["--check", "build demo"]), ids=" ".join)
def test_wrong_words(bootstrap, arguments):
    result = bootstrap(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"scripts/bootstrap: unknown purpose .*; use build, demo, .*\n", result.stderr)
