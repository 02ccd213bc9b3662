# SPDX-License-Identifier: Apache-2.0
"""What the tests of the page share: a browser, and the dump of a small program."""

import pytest

from browser import chromium
from recordings import leak, recordings  # noqa: F401


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened
        assert not opened.complaints()
