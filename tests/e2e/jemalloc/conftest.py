# SPDX-License-Identifier: Apache-2.0
"""What the tests of jemalloc's interface share."""

import pytest

import allocators
from recordings import leak, recordings  # noqa: F401


@pytest.fixture(params=["jemalloc", "heaptap"])
def library(request, lab):
    """For what the library does alone: no collector, whose start and end would take most of the test. Such a test is marked
    without_bpf."""
    return lab.checked({"jemalloc": allocators.Jemalloc, "heaptap": allocators.HeaptapAlone}[request.param](lab))


@pytest.fixture
def alone(lab):
    """heaptap's library without a collector."""
    return lab.checked(allocators.HeaptapAlone(lab))
