# SPDX-License-Identifier: Apache-2.0
"""A file system of one page. 40 call paths take more: only the beginning of a dump fits."""

import errno
import os
import subprocess

import pytest

import dumping
from allocators import KI, assert_answers, said
from dumping import BLOCK, assert_goes_on, assert_no_torn_file


@pytest.fixture(autouse=True)
def small(heaptap):
    """The path of that file system."""
    path = heaptap.path("small")
    os.mkdir(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "heaptap-test", path], check=True)
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def begin(heaptap, prefix="dump", conf=""):
    process = dumping.begin(heaptap, prefix, conf)
    assert_answers(process, (f"deep 40 {BLOCK}", "kept 40"), ("write string prof.dump fits.prof", "0"))
    assert os.path.getsize(heaptap.path("fits.prof")) > 4 * KI
    return process


def test_not_even_a_page(heaptap, small):
    with open(os.path.join(small, "full.prof"), "wb") as file:
        file.write(b"x" * 4 * KI)
    process = begin(heaptap)
    assert_answers(process, ("write string prof.dump small/named.prof", str(errno.EFAULT)))
    assert os.listdir(small) == ["full.prof"]
    assert_goes_on(heaptap, process, 1)
    os.unlink(os.path.join(small, "full.prof"))


def test_by_hand(heaptap, small):
    """EFAULT, one line, and nothing under the name."""
    process = begin(heaptap, "small/auto")
    assert_answers(process, ("write string prof.dump small/named.prof", str(errno.EFAULT)))
    assert len(said(process)) == 1, said(process)
    assert_answers(process, ("call prof.dump", str(errno.EFAULT)))
    assert os.listdir(small) == []
    assert_goes_on(heaptap, process, 2)


def test_final(heaptap, small):
    """No file under the name, no summary, one line; the status of `heaptap run` shows that a dump is missing."""
    process = begin(heaptap, "small/auto", ",prof_leak:true,prof_final:true")
    process.ends(1)
    assert os.listdir(small) == []
    assert len(said(process)) == 1, said(process)


def test_over_an_older_dump(lab, heaptap):
    """A file that exists is a complete dump afterwards, or it is gone."""
    process = begin(heaptap)
    with open(heaptap.path("small/old.prof"), "w", encoding="ascii") as file:
        file.write("heap_v2/1\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n")
    assert_answers(process, ("write string prof.dump small/old.prof", str(errno.EFAULT)))
    assert_no_torn_file(lab)
    assert_goes_on(heaptap, process, 1)
