# SPDX-License-Identifier: Apache-2.0
"""A file keeps its probes for some time after its last process, so that a program that is started again has them from its
first allocation on.

Error bounds: none.
"""

import os
import shutil
import time

import pytest

from harness import LIBRARY, target, wait_until

DAEMON = ["--exact"]
LOSSES_ALLOWED = ("beginning",)  # of the first process of an unknown file
COUNT = 3000
# Three times the time after which the daemon looks for files that no process maps.
PAUSE_SECONDS = 30


def start(lab, library):
    return lab.program(target("keeps"), COUNT, env={"LD_PRELOAD": library}, talks=True)


@pytest.mark.slow
def test_a_pause_between_two_starts(lab, daemon):
    """Another copy of the library, on the root file system: its probes outlive the pause."""
    folder = os.path.dirname(LIBRARY)
    assert os.stat(folder).st_dev == os.stat("/").st_dev, f"{folder} must be on the root file system"
    library = os.path.join(folder, f"libpause{os.getpid()}.so")
    shutil.copy(LIBRARY, library)
    try:
        for _ in range(2):  # the first one makes the file known
            first = start(lab, library)
            first.answer()
            daemon.settle()
            first.ends()
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() > begin + PAUSE_SECONDS, "the pause is over", seconds=2 * PAUSE_SECONDS)
        again = start(lab, library)
        assert again.answer() == "kept"
        entry = daemon.processes()[again.pid]
        assert (entry["samples"], entry["live_objects"], entry["losses"]) == (COUNT, COUNT, {})
    finally:
        os.unlink(library)
