# SPDX-License-Identifier: Apache-2.0
"""Names after a file was built anew: an old profile never gets the names of a new file."""

import glob
import os
import shutil
import subprocess

import pytest

from harness import GO_PPROF
from heap_v2 import Dump

# Two builds of one program. The functions have changed places, so that each address is one of the other function.
SOURCE = """
#include <stdlib.h>
static void *volatile kept[200];
__attribute__((noinline)) void FIRST(void) { for (int i = 0; i < 100; i++) kept[i] = malloc(300); }
__attribute__((noinline)) void SECOND(void) { for (int i = 100; i < 200; i++) kept[i] = malloc(5000); }
int main(void) { ORDER; return 0; }
"""
FUNCTIONS = ("orders", "customers")


def build(path, first, second, order, flags=()):
    text = SOURCE.replace("FIRST", first).replace("SECOND", second).replace("ORDER", order)
    subprocess.run(["gcc", "-O1", "-g", *flags, "-x", "c", "-o", path, "-"], input=text, encoding="ascii", check=True)


def build_before(path, flags=()):
    build(path, "orders", "customers", "orders(); customers()", flags)


def build_after(path, flags=()):
    build(path, "customers", "orders", "customers(); orders()", flags)


def said(lab, *arguments):
    """What a report says and shows."""
    session = lab.heaptap("report", *arguments)
    session.records = False
    session.ends()
    return session.stderr(), session.stdout()


@pytest.fixture
def dump(lab, request):
    program = lab.path("program")
    build_before(program, getattr(request, "param", ()))
    lab.heaptap("run", "--exact", "--", program).ends()
    return program, Dump(lab.only_dump().path)


def overwrite(program, flags=()):
    build_after(f"{program}.new", flags)
    before = os.stat(program)
    shutil.copyfile(f"{program}.new", program)
    assert os.stat(program).st_ino == before.st_ino


def test_the_dump_has_build_ids(lab, dump):
    program, found = dump
    note = lab.reader("readelf", "-n", program)
    (mapping,) = [mapping for mapping in found.mappings if mapping.path == program]
    assert f"Build ID: {found.build_ids[mapping.begin]}" in note
    # Of the library that was preloaded, too.
    (library,) = [mapping for mapping in found.mappings if mapping.path.endswith("libheaptap.so")]
    assert library.begin in found.build_ids
    messages, text = said(lab, found.path)
    assert messages == "" and all(name in text for name in FUNCTIONS)


@pytest.mark.parametrize("how", ("overwritten", "linked"))
def test_a_program_that_was_rebuilt(lab, dump, how):
    program, found = dump
    if how == "overwritten":
        overwrite(program)
    else:
        build_after(program)  # perhaps with the same inode
    messages, text = said(lab, found.path)
    assert "no function names from files that are missing here or have changed" in messages and program in messages
    assert not any(name in text for name in FUNCTIONS)
    # The same build again: its names are true.
    build_before(f"{program}.again")
    shutil.copyfile(f"{program}.again", program)
    if how == "overwritten":
        messages, text = said(lab, found.path)
        assert messages == "" and all(name in text for name in FUNCTIONS)


@pytest.mark.parametrize("dump", (("-Wl,--build-id=none",),), indirect=True, ids=("no build-id",))
def test_a_program_without_build_id(lab, dump):
    program, found = dump
    messages, text = said(lab, found.path)
    assert messages == "" and all(name in text for name in FUNCTIONS)
    overwrite(program, ("-Wl,--build-id=none",))
    messages, text = said(lab, found.path)
    assert program in messages and not any(name in text for name in FUNCTIONS)


def test_a_copy_of_the_machine(lab, dump):
    """A sysroot with another build of the program."""
    program, found = dump
    sysroot = lab.path("sysroot")
    os.makedirs(sysroot + os.path.dirname(program))
    build_after(sysroot + program)
    messages, text = said(lab, "--sysroot", sysroot, found.path)
    assert program in messages and not any(name in text for name in FUNCTIONS)
    build_before(sysroot + program)
    messages, text = said(lab, "--sysroot", sysroot, found.path)
    assert program not in messages and all(name in text for name in FUNCTIONS)


def test_other_readers(lab, dump):
    """Comments of the dump are none of their business."""
    program, found = dump
    text = lab.reader("jeprof", "--text", "--show_bytes", program, found.path)
    assert all(name in text for name in FUNCTIONS)
    lab.heaptap("run", "--exact", "--format", "gperftools", "-o", "other", "--", program).ends()
    (path,) = glob.glob(lab.path("other.*.heap"))
    for reader in (GO_PPROF + ("-top",), ("google-pprof", "--text"), ("jeprof", "--text")):
        text = lab.reader(*reader, program, path)
        assert all(name in text for name in FUNCTIONS), reader
    os.unlink(path)  # not in the format that is checked after each test
