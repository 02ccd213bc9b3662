# SPDX-License-Identifier: Apache-2.0
"""Recordings that the tests of a module share, because attaching and removing probes takes longer than most tests.

Import the fixture into the conftest.py of a folder. A test only reads what is shared.
"""

import os
import shutil
import tempfile

import pytest

import harness
from lab import Lab


class Recordings:
    """What was recorded, by name. Each recording has a folder of its own until the end of the module."""

    def __init__(self):
        self._made = {}
        self._folders = []

    def once(self, name, make):
        """The result of make(lab). Only the first call of a module records; its books and dumps are checked."""
        if name not in self._made:
            folder = tempfile.mkdtemp(prefix=harness.FOLDER)
            self._folders.append(folder)
            os.chmod(folder, 0o755)
            lab = Lab(folder)
            result = make(lab)
            lab.check_all()
            self._made[name] = result
        return self._made[name]

    def end(self):
        for folder in self._folders:
            if os.environ.get("HEAPTAP_KEEP") == "1":
                print(f"a shared recording in {folder}")
            else:
                shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def recordings():
    made = Recordings()
    yield made
    made.end()


@pytest.fixture
def leak(recordings):
    """The dump of the program of jemalloc's wiki."""
    def record(lab):
        lab.heaptap("run", "--exact", "--", harness.target("wiki_leak")).ends()
        return lab.dumps()[0].path
    return recordings.once("leak", record)
