# SPDX-License-Identifier: Apache-2.0
"""What was built belongs together."""

import os

import pytest

from harness import BUILD, HEAPTAP

pytestmark = [pytest.mark.without_bpf, pytest.mark.product]


def test_the_collector_has_the_programs_that_were_built():
    """A cache of compiled files that does not know the skeleton would leave those of an earlier build in."""
    with open(HEAPTAP, "rb") as collector, open(os.path.join(BUILD, "bpf", "heaptap.bpf.o"), "rb") as programs:
        assert programs.read() in collector.read()
