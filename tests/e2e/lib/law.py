# SPDX-License-Identifier: Apache-2.0
"""Whether the estimates of tests/targets/sampling_law.c keep the sampling law.

N allocations on one call path give a number of samples with mean N p and variance N p (1 - p); the estimate of
objects is samples / p, with standard error sqrt(N (1 - p) / p), the estimate of bytes is `size` times that. Bound of
every assertion: 4 standard errors, plus 1 % of one because the figures in a dump are rounded.
"""

import math
import re

import symbols


def truth(text):
    """{path: (objects, bytes)} from the target's output."""
    return {name: (int(objects), int(size))
            for name, objects, size in re.findall(r"^(\w+) (\d+) (\d+)$", text, re.MULTILINE)}


def assert_law(what, rate, true_objects, true_bytes, objects, size_bytes):
    size = true_bytes / true_objects
    p = -math.expm1(-size / rate)
    error = math.sqrt(true_objects * (1 - p) / p)
    bound = 4.01 * error + 0.001 * true_objects * (1 - p) + 0.5
    assert abs(objects - true_objects) <= bound, f"{what}: {objects} objects, in truth {true_objects}, bound {bound}"
    assert abs(size_bytes - true_bytes) <= bound * size, (
        f"{what}: {size_bytes} bytes, in truth {true_bytes}, bound {bound * size}")


def assert_paths_keep_the_law(lab, session, rate, which="total"):
    dump = lab.only_dump()
    assert dump.rate == rate
    for path, (true_objects, true_bytes) in truth(session.stdout()).items():
        estimate = dump.estimate(symbols.stacks_through(dump, path), which)
        assert_law(path, rate, true_objects, true_bytes, *estimate)
