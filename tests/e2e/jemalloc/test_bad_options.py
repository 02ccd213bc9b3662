# SPDX-License-Identifier: Apache-2.0
"""Bad input in MALLOC_CONF: a line that says what, as jemalloc says it, and the program goes on. No error bounds."""

import signal
import subprocess

import pytest

from allocators import JEMALLOC, KI, SAYS, said
from harness import LIBRARY, target

OPTION_BYTES = 64 * KI
pytestmark = pytest.mark.without_bpf


def run_with(lab, library, conf):
    """The status of a program that prints the number of its call paths, 8; what it printed; what the allocator said."""
    process = lab.program(target("contexts"), "3", env={"LD_PRELOAD": library, "MALLOC_CONF": conf})
    return process.wait(), process.stdout(), said(process)


def assert_goes_on(lab, conf):
    """What it says."""
    status, output, lines = run_with(lab, LIBRARY, conf)
    assert (status, output) == (0, "8\n"), lines
    return lines


@pytest.mark.parametrize("conf", (
    "foo:bar", "prof:yes", "prof:", "prof", ",", "prof:true,", "prof_active:TRUE", "prof:true,,prof_final:true",
    "prof:true prof_final:true", "lg_prof_interval:99", "lg_prof_interval:-2", "lg_prof_sample:x", "lg_prof_sample:99",
    "lg_prof_sample:-1", "lg_prof_sample:18446744073709551616", "prof_time_resolution:low",
    "prof_leak_error:true,prof_final:false", "prof_recent_alloc_max:-2", "pröf:true", "prof\t:true", "thp:sometimes",
    "junk:maybe"))
def test_jemalloc_s_lines(lab, conf):
    """Malformed strings, unknown keys, values out of range: jemalloc's line, once. (jemalloc 5.3.0 says some of
    them twice; newer ones add the rest of the string after " -- ".)"""
    status, output, expected = run_with(lab, JEMALLOC, conf)
    assert (status, output) == (0, "8\n")
    lines = assert_goes_on(lab, conf)
    assert {line.split(" -- ")[0] for line in lines} == set(expected)
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("conf", (":", ":true"))
def test_an_empty_key(lab, conf):
    """An unknown one. (jemalloc 5.3.0 takes it for the value of some other option, or says nothing.)"""
    assert assert_goes_on(lab, conf) == [f"{SAYS}Invalid conf pair: {conf}"]


@pytest.mark.parametrize("conf, status", (("abort_conf:true,foo:bar", -signal.SIGABRT),
                                          ("abort_conf:true,prof:true", 0)))
def test_abort_conf(lab, conf, status):
    """Who asks for it is ended by SIGABRT, with jemalloc's words; not if all is well."""
    expected = run_with(lab, JEMALLOC, conf)
    assert expected[0] == status
    assert run_with(lab, LIBRARY, conf) == expected


@pytest.mark.parametrize("conf, most", (
    pytest.param("k" * OPTION_BYTES + ":1", 1, id="key"), pytest.param("k" * OPTION_BYTES, 1, id="no value"),
    pytest.param("lg_prof_sample:" + "1" * OPTION_BYTES, 1, id="number"),
    pytest.param("prof_prefix:" + "/p" * (OPTION_BYTES // 2), 0, id="prefix"),
    pytest.param("prof:true," * (OPTION_BYTES // 10) + "prof:true", 0, id="good pairs"),
    pytest.param("," * OPTION_BYTES, 1, id="commas"), pytest.param(":" * OPTION_BYTES, 1, id="colons"),
    pytest.param("a:b," * (OPTION_BYTES // 4) + "a:b", OPTION_BYTES // 4 + 1, id="bad pairs")))
def test_64_kib_of_options(lab, conf, most):
    """Of one key, of one value, of good pairs, of bad pairs: at most a line for each bad pair."""
    assert len(assert_goes_on(lab, conf)) <= most


def test_every_byte_as_a_key():
    for byte in range(1, 256):
        key = bytes([byte])
        process = subprocess.run([target("contexts"), "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env={"LD_PRELOAD": LIBRARY, b"MALLOC_CONF": b"prof" + key + b"true"}, check=False)
        assert (process.returncode, process.stdout) == (0, b"8\n"), key
        assert process.stderr.count(b"\n") <= (1 if key != b"\n" else 2), process.stderr
