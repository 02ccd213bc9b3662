# SPDX-License-Identifier: Apache-2.0
"""The threat model in .github/SECURITY.md: each claim names a mechanism and tests, and these tests exist."""

import glob
import os
import re

import pytest

from harness import ROOT

pytestmark = pytest.mark.without_bpf


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def rows():
    """(claim, mechanism, tests) of all tables."""
    page = read(os.path.join(ROOT, ".github", "SECURITY.md"))
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in found if row != ["claim", "mechanism", "test"]]


def test_each_claim_has_tests():
    assert rows()
    for row in rows():
        assert len(row) == 3 and all(row), row


def test_the_tests_exist():
    by_name = {os.path.basename(path): read(path)
               for path in glob.glob(os.path.join(ROOT, "tests", "e2e", "*", "test_*.py"))}
    units = "".join(map(read, glob.glob(os.path.join(ROOT, "tests", "unit", "*_test.cc"))))
    fuzzers = {os.path.basename(path).removesuffix(".cc")
               for path in glob.glob(os.path.join(ROOT, "tests", "fuzz", "*_fuzzer.cc"))}
    for _, _, tests in rows():
        file = None
        for name in re.findall(r"`([^`]+)`", tests):
            if name.endswith(".py"):
                file = by_name[name]
            elif name.startswith("test_"):
                assert f"def {name}(" in file, name
            elif name.endswith("_fuzzer"):
                assert name in fuzzers, name
            else:
                suite, _, test = name.partition(".")
                assert re.search(rf"^TEST(_[FP])?\({suite}, {test}", units, re.MULTILINE), name
