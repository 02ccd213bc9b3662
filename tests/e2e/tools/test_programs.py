# SPDX-License-Identifier: Apache-2.0
"""Debian's programs run correctly with the library preloaded, with and without profiling: the same output and status as
without it. The programs are in programs.py.

Profiled with 4 KiB between samples, far more samples than by default. Error bounds: none; outputs are compared byte for
byte, except for times and PIDs.
"""

import os
import shutil

import pytest

import programs
from harness import HEAPTAP, LIBRARY


@pytest.fixture
def place(lab):
    """A copy of heaptap and its library that every user may read: the checkout may be accessible only to root."""
    path = lab.path("bin")
    os.mkdir(path)
    for file in (HEAPTAP, LIBRARY):
        shutil.copy(file, path)
    return path


# These take minutes together. postgres and clang add little to redis and gcc.
SLOW = {"postgres", "clang", *programs.LARGE_PROGRAMS}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
                                  for name in (*programs.PROGRAMS, *programs.LARGE_PROGRAMS)])
def test_same_output(lab, place, name):
    """plain, preloaded, profiled, and plain again: if the two plain runs differ, the machine has changed."""
    def plain(command, **options):
        return lab.program(*command, **options)

    def preloaded(command, **options):
        return lab.program(*command, env={"LD_PRELOAD": f"{place}/libheaptap.so"}, **options)

    def profiled(command, **options):
        return programs.Profiled(lab.heaptap("run", "-o", lab.path("profile"), "--lg-sample", "12", "--", *command,
                                    binary=f"{place}/heaptap", env={"HEAPTAP_CONF": "prof_seed:1"}, **options))

    def run(start):
        return programs.run(name, lab.folder, start)[0]

    for _ in range(3):
        results = {start.__name__: run(start) for start in (plain, preloaded, profiled)}
        unchanged = run(plain) == results["plain"]
        if unchanged:
            break
    assert unchanged, "two runs without heaptap differ"
    assert results["preloaded"] == results["plain"]
    assert results["profiled"] == results["plain"]
    assert lab.dumps(kind="f"), "no dump"
