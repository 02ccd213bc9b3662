# SPDX-License-Identifier: Apache-2.0
"""The collector, which runs as root, and the library, which runs in all users' processes, are hardened: checked in their
ELF headers."""

import re
import subprocess

import pytest

from harness import HEAPTAP, LIBRARY

pytestmark = [pytest.mark.without_bpf, pytest.mark.product,
              pytest.mark.parametrize("file", (HEAPTAP, LIBRARY), ids=("heaptap", "library"))]


def readelf(option, file):
    return subprocess.run(["readelf", "-W", option, file], capture_output=True, text=True, check=True).stdout


def test_position_independent(file):
    assert re.search(r"^\s*Type:\s+DYN ", readelf("-h", file), re.MULTILINE)


def test_relocations_are_read_only(file):
    """All relocations are applied at the start, and their tables are then write-protected; there are none in the code."""
    assert re.search(r"^\s*GNU_RELRO\s", readelf("-l", file), re.MULTILINE)
    dynamic = readelf("-d", file)
    assert re.search(r"\(FLAGS_1\)\s.*\bNOW\b", dynamic)
    assert "TEXTREL" not in dynamic


def test_nothing_is_writable_and_executable(file):
    segments = re.findall(r"^\s*(LOAD|GNU_STACK)\s+(?:0x\w+\s+){5}([RWE ]{3})", readelf("-l", file), re.MULTILINE)
    assert "GNU_STACK" in dict(segments)
    assert [flags for _, flags in segments if "W" in flags and "E" in flags] == []


def test_no_folder_to_look_for_libraries(file):
    assert not re.search(r"\((RPATH|RUNPATH)\)", readelf("-d", file))


def test_checks_of_the_compiler(file):
    """Stack protection, and checks of lengths passed to libc's functions."""
    symbols = readelf("--dyn-syms", file)
    assert re.search(r"\b__stack_chk_fail\b", symbols)
    # The libraries have their own functions for the second.
    code = subprocess.run(["objdump", "--disassemble", file], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert re.search(r"\bcall +\w+ <__\w+_chk(@plt)?>", code)
