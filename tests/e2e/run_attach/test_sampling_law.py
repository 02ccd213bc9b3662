# SPDX-License-Identifier: Apache-2.0
"""The sampling law: every allocation of `size` bytes is a sample with probability p = 1 - exp(-size / R).

The bounds are those of law.py. Seeds are fixed, so a test that has passed passes again, until the sampler changes.
"""

import math

import pytest

import symbols
from harness import LONG, PATIENCE_SECONDS, target
from law import assert_paths_keep_the_law, truth

DEFAULT_RATE = 1 << 19
MI = 1 << 20


def run_law(lab, seed, *arguments, flags=()):
    session = lab.heaptap("run", *flags, "--", target("sampling_law"), *arguments,
                          env={"HEAPTAP_CONF": f"prof_seed:{seed}"})
    session.ends(seconds=5 * PATIENCE_SECONDS)
    return session


def test_small_and_large_kept(lab):
    """32 Mi blocks of 16 bytes on one path, 16 of 32 MiB on another, the default rate, all live."""
    session = run_law(lab, 1, "two", "keep")
    assert truth(session.stdout()) == {"allocate_16": (32 * MI, 512 * MI), "allocate_32M": (16, 512 * MI)}
    assert_paths_keep_the_law(lab, session, DEFAULT_RATE)


def test_small_and_large_freed(lab):
    """The same with each block freed at once: the estimates of all allocations, by path in the dump, and in the books, which
    include the loader's few blocks."""
    session = run_law(lab, 2, "two", "free")
    assert_paths_keep_the_law(lab, session, DEFAULT_RATE, "ever")
    (entry,) = session.books()
    p = -math.expm1(-16 / DEFAULT_RATE)
    error = math.sqrt(32 * MI * (1 - p) / p)
    assert abs(entry["allocated_objects"] - (32 * MI + 16)) <= 4 * error + 100, entry
    assert abs(entry["allocated_bytes"] - 1024 * MI) <= 16 * 4 * error + 2 * DEFAULT_RATE, entry
    for path in truth(session.stdout()):
        dump = lab.only_dump()
        assert dump.estimate(symbols.stacks_through(dump, path)) == (0, 0), path


@pytest.mark.endurance
def test_every_size_class_at_the_default_rate(lab):
    """About 16 MiB of each class, 32 samples of the small ones: standard error 18 %. HEAPTAP_LONG=1: 64 MiB, 9 %."""
    assert_paths_keep_the_law(lab, run_law(lab, 3, "classes", (64 if LONG else 16) * MI), DEFAULT_RATE)


def test_every_size_class_at_a_high_rate(lab):
    """About 8 MiB of each class at R = 4 KiB, 2048 samples of the small ones: standard error 2 %."""
    assert_paths_keep_the_law(lab, run_law(lab, 4, "classes", 8 * MI, flags=("--lg-sample", "12")), 1 << 12)


def test_another_seed_gives_other_samples(lab):
    """Seeds work: two seeds give two numbers of samples, the same seed gives the same number."""
    flags = ("--lg-sample", "12")
    samples = []
    for seed in (5, 6, 5):
        (entry,) = run_law(lab, seed, "classes", MI, flags=flags).books()
        samples.append(entry["samples_allocated"])
    assert samples[0] != samples[1]
    assert samples[0] == samples[2]
