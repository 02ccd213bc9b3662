# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page share: a browser, and the dump of a small program."""

import pytest

from browser import chromium
from harness import target


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened
        assert not opened.complaints()


@pytest.fixture
def leak(lab):
    session = lab.heaptap("run", "--exact", "--", target("wiki_leak"))
    session.ends()
    return lab.dumps()[0].path
