# SPDX-License-Identifier: Apache-2.0
"""MALLOC_CONF that is very long or contains any byte: one line for each error, and the program goes on. The tables of
tests/differential/ compare other long and invalid strings with jemalloc.
"""

import os

import pytest

from allocators import KI, said
from harness import target

OPTION_BYTES = 64 * KI
pytestmark = pytest.mark.without_bpf


def lines_said(lab, conf):
    """The lines on stderr of a program that prints the number of its call paths, 8."""
    process = lab.preloaded(target("contexts"), "3", env={"MALLOC_CONF": conf})
    process.ends()
    assert process.stdout() == "8\n"
    return len(said(process))


@pytest.mark.parametrize("conf, lines", (
    pytest.param("k" * OPTION_BYTES, 1, id="no value"),
    pytest.param("lg_prof_sample:" + "1" * OPTION_BYTES, 1, id="number"),
    pytest.param(":" * OPTION_BYTES, 1, id="colons"),
    pytest.param("a:b," * (OPTION_BYTES // 4) + "a:b", OPTION_BYTES // 4 + 1, id="bad pairs")))
def test_64_kib_of_options(lab, conf, lines):
    """64 KiB of one word, of one number, of invalid pairs."""
    assert lines_said(lab, conf) == lines


def test_every_byte_in_a_key(lab):
    for byte in range(1, 256):
        conf = b"prof" + bytes([byte]) + b"true"
        process = lab.preloaded(target("contexts"), "3", env={"MALLOC_CONF": os.fsdecode(conf)})
        process.ends()
        assert process.stdout() == "8\n"
        # A complete pair, and an incomplete key, which may contain a line feed.
        assert process.stderr().count("\n") == {b":": 0, b"\n": 2}.get(bytes([byte]), 1), conf
